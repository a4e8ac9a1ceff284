// comm/control/client.h: one rank's connection to the controller.
//
//   std::unique_ptr<ControlClient> control = connect_control(options, Clock::real());
//   control->on_lost([&](int rank, const std::string& why) { comm.report_lost(rank, why); });
//   control->set("address/3", address);                       // rendezvous
//   control->watch_process(2, pid_of_rank_2);         // same host: death seen in milliseconds
//
// A thread of its own keeps the signs of life going, so a trainer that computes for minutes, or is
// swapped out, is not taken for dead. The clock must be the real one; a simulator uses ClientCore.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/channel.h"
#include "comm/control/client_core.h"
#include "comm/control/group_note.h"
#include "comm/control/progress.h"
#include "comm/group.h"
#include "comm/log.h"
#include "comm/options.h"
#include "comm/recorder.h"
#include "comm/store.h"

namespace motley {

class ControllerHost;
class PeerProbe;

// What the controller decided on a rank that was ready.
struct GroupOutcome {
  enum Kind : std::uint8_t {
    kGroup,  // average with `members` under `tag`, then say done() or fail()
    kHeal,   // all `members` take what the donor completed last; then the same
    kSolo,   // go on alone
    kAway,   // the connection to the controller is broken, or it has been silent for a lease
  };
  Kind kind = kSolo;
  GroupTag tag;
  std::vector<int> members;  // kGroup, kHeal: ascending, this rank among them
  GroupNote note;            // kGroup, kHeal
};

// Every call throws kAborted once this rank counts as dead, kPeerLost if the controller has been
// silent for three leases, and kTimeout at its deadline. Store calls and group calls may run at the
// same time from two threads; calls of one kind run one after another.
class ControlClient final : public Store, private ChannelEvents {
 public:
  // Waits to be admitted. Throws kTimeout at `deadline`; kInvalid if refused, with the reason.
  ControlClient(std::unique_ptr<ControlChannel> channel, const ClientConfig& config, Clock& clock,
                TimePoint deadline);
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;
  // Tells the controller that this rank ends in good order; where an exception unwinds it, that
  // this rank is dead. Waits at most a second for its answer.
  ~ControlClient() override;

  // The controller itself, if this process runs it: ends with this connection, after its goodbye.
  void keep(std::unique_ptr<ControllerHost> host);

  int rank() const noexcept { return config_.rank; }
  int size() const noexcept { return config_.size; }
  // Where the controller is: "tcp://10.0.0.1:4000".
  std::string controller() const { return channel_->controller(); }

  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, TimePoint deadline) override;
  // The same, but gives up as soon as any rank is dead. Throws kPeerLost, naming it.
  std::string get_from_living(std::string_view key, TimePoint deadline);
  std::int64_t add(std::string_view key, std::int64_t amount) override;

  // `lost` is called once for each rank that dies, on the control thread, from now on; for those
  // dead already it is called before this returns. An empty function ends it; when that returns, no
  // call is under way.
  void on_lost(std::function<void(int rank, const std::string& why)> lost);
  // `dropped` is called, on the control thread, when `rank` takes no more part in group `tag`. The
  // same rules.
  void on_dropped(std::function<void(const GroupTag& tag, int rank)> dropped);
  // Watches the process of a peer on this host. Its death is reported to all within milliseconds;
  // if it ended in good order, nobody is told. Where the kernel cannot do it, the lease finds out.
  void watch_process(int rank, int pid);
  // Asks peers on other hosts by `probe`: those that this rank waits for and, while the controller
  // is silent, all. Who does not answer is lost. Once.
  void watch_peers(std::unique_ptr<PeerProbe> probe);
  // This rank cannot take its part: to the others it is dead, for the reason `why`. Waits at most a
  // second for the controller's answer.
  void resign(const std::string& why);
  // Throws kPeerLost, naming it, if a rank is dead; `doing` says what for it is needed.
  void check_all_live(const std::string& doing) const;
  // Ranks known to be dead, ascending.
  std::vector<int> lost_ranks() const;

  // The calls in `recorder` are what is told of this rank from now on: by its signs of life, and to
  // those who dump the calls of all ranks. Null ends it; when that returns, it is not looked at.
  void tell_of(Recorder* recorder);
  // Asks where the members of call `number` of `group` are (`members` empty: all ranks). Does not
  // wait: last_report() gives the latest answer, once there is one.
  void ask_report(const GroupTag& group, std::uint32_t number, const std::vector<int>& members);
  std::optional<Report> last_report() const;
  // The same, waited for.
  Report report(const GroupTag& group, std::uint32_t number, TimePoint deadline);
  // Has the last calls of all ranks written into `folder`, as CallDump says, within its patience,
  // unless another rank makes a dump of that name already. Does not wait, but the destructor does.
  // `log` is told how it went, on the control thread. Returns where the file will be; throws kIo if
  // it cannot be written.
  std::string dump(const std::string& folder, const std::string& name, const std::string& why,
                   LogSink log);

  // This rank has made `step` and is ready to average with others. kGroup or kSolo; or kHeal with
  // this rank as donor, after which it says ready() again; or kAway.
  // `begun`: announced_group(), with which it averages already what it had by then; so it takes
  // part in it, even if it turned out to give nothing.
  GroupOutcome ready(std::int64_t step, const ReadyNote& note, TimePoint deadline,
                     const std::optional<GroupTag>& begun = {});
  // This rank expects to be ready with `step` after note.eta. Then ready() has its answer without
  // asking, if there is one by then. Does not wait; withdraw() takes it back.
  void announce(std::int64_t step, ReadyNote note);
  // The group of what was announced, kGroup, if it has one: then ready() will return that at once,
  // or what it has become by then. Until then this rank can be taken out of it.
  std::optional<GroupOutcome> announced_group() const;
  // Of a message to the controller and its answer; zero if not known yet.
  Duration round_trip() const;
  // ready() did not ask, so the controller may have taken this rank out of group `tag` meanwhile:
  // then, what it is to do instead. To be asked before an average is taken, and after it failed. A
  // controller that is away has not.
  std::optional<GroupOutcome> replaced(const GroupTag& tag, TimePoint deadline);
  // The average of group `tag` is complete here, and is kept until ready() or leave() returns
  // something else than kHeal. Does not wait.
  void done(const GroupTag& tag, const std::vector<int>& members);
  // It could not be completed; `members` with GroupNote::keepers, `suspect` is the rank to blame,
  // or -1. kGroup (the next attempt), kHeal or kSolo. Waits for a controller that is away.
  struct Failure {
    ErrorCode code;
    int suspect;
  };
  GroupOutcome fail(const GroupTag& tag, const std::vector<int>& members, const Failure& failure,
                    const ReadyNote& note, TimePoint deadline);
  // Takes ready() back; whatever the controller decides, this rank has no part in it.
  void withdraw(TimePoint deadline);
  // This rank will not be ready again (unless it says so): the others' groups shrink as needed.
  // kSolo; or kHeal, as ready(); or kAway.
  GroupOutcome leave(TimePoint deadline);

  // One of the requests on the supply's lane, and its answer.
  Message supply(Message request, TimePoint deadline);

 private:
  void on_message(const Message& message) override;
  TimePoint on_time() override;
  void on_exit(int rank) override;
  void on_socket() override;
  void on_broken() override;

  // The answer to `request`; `doing` names it in errors. kFail: throws kPeerLost if a rank is dead.
  // `leases` without a sign of the controller, or, if kUnlessBroken, one, or a broken connection:
  // throws kPeerLost that names no rank.
  enum class OnLoss : std::uint8_t { kWait, kFail };
  static constexpr int kSilentLeases = 3;
  static constexpr int kUnlessBroken = 0;
  Message call(Message request, TimePoint deadline, const std::string& doing,
               OnLoss on_loss = OnLoss::kWait, int leases = kSilentLeases);
  GroupOutcome group_call(Message request, TimePoint deadline, int leases,
                          const std::string& doing);
  GroupOutcome ask_for_group(Message request, TimePoint deadline, int leases,
                             const std::string& doing);
  void check_usable(TimePoint now, const std::string& doing, int leases) const;
  void flush();  // with state_ locked
  void deliver_losses();
  void tell_progress();
  void take_told(const Message& message);
  Message with_open(Message request) const;  // with state_ locked
  std::optional<GroupOutcome> take_announced(std::int64_t step, const ReadyNote& note,
                                             const std::optional<GroupTag>& begun);
  GroupOutcome outcome_of(Message reply, const std::string& doing) const;
  std::vector<CallRecord> own_calls() const;

  [[noreturn]] void throw_no_answer(const std::string& doing) const;
  [[noreturn]] void throw_error(const Message& reply, const std::string& doing) const;
  void check_losses(const std::string& doing) const;  // with state_ locked

  std::unique_ptr<ControllerHost> host_;  // goes last
  ClientConfig config_;
  const int unwinding_ = std::uncaught_exceptions();  // so many do not concern this connection
  Clock& clock_;
  std::unique_ptr<ControlChannel> channel_;
  struct State;
  std::unique_ptr<State> state_;
};

// Connects to options.controller as options.rank and waits until the controller has admitted it, at
// most options.join_timeout. `controller_rank`: the rank whose process runs the controller, if any.
std::unique_ptr<ControlClient> connect_control(const Options& options, Clock& clock,
                                               int controller_rank = -1);

}  // namespace motley
