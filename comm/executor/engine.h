// comm/executor/engine.h: drives all calls of one rank over one transport.
//
// Progress is made by whoever waits: a token lets one thread at a time use the transport. A thread
// that finds the token taken sleeps until its own call is done or the token is free. Calls that
// nobody waits for are moved on by a thread of the engine's own (progress_thread.h), which gives
// the token back as soon as anybody else wants it.
//
// A call runs as a schedule of messages or, where the transport offers that, as a whole
// (transport/team.h). A small one of the latter kind is complete when start() returns if the others
// are there, and has then cost no allocation, lock or look at the clock.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/clock.h"
#include "comm/executor/arena.h"
#include "comm/executor/execution.h"
#include "comm/executor/progress_thread.h"
#include "comm/executor/staging.h"
#include "comm/executor/team_execution.h"
#include "comm/executor/watch.h"
#include "comm/request.h"
#include "comm/transport/team.h"
#include "comm/transport/transport.h"

namespace motley {

class Engine {
 public:
  using Over = std::function<bool()>;  // whether there is nothing left to wait for

  Engine(std::unique_ptr<Transport> transport, Clock& clock);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();  // calls still under way fail with kAborted

  // Starts `call`, whose time begins now; the request waits for it.
  Request start(Call call);
  // The same of a call that `team` runs, on host memory; `whole` tells the rest of it if it is not
  // over at once.
  Request start(Team& team, const TeamCall& part, const std::function<Call()>& whole);
  // One round of progress, if no other thread is making any. Never blocks.
  void poll();
  // Makes progress, asleep between messages, until `over`, which becomes true as calls end.
  void wait_until(const Over& over) { progress_until(over, &Transport::sleep); }
  // Makes progress until `event` is done; false if `deadline` comes first.
  bool wait(const Event& event, TimePoint deadline);
  // See Transport::use_links.
  void use_links(const Topology& topology);
  // Does `work` while nobody makes progress.
  void alone(const std::function<void()>& work);
  // See Transport::retire_before.
  void retire_before(const GroupTag& tag);
  // Fails the calls of groups that `rank` is in, any thread: future ones at once, those under way
  // when they need that rank or, at the latest, after kLossGrace. What they still need may have
  // been sent before the death.
  static constexpr Duration kLossGrace = std::chrono::milliseconds(250);
  void report_lost(int rank, const std::string& why) noexcept;
  // `rank` takes no part in group `tag`, nor in earlier attempts of it: calls of them fail as for a
  // loss. Forgotten by retire_before(). Any thread.
  void report_dropped(const GroupTag& tag, int rank) noexcept;

  Transport& transport() const noexcept { return *transport_; }
  Clock& clock() noexcept { return clock_; }
  Recorder& recorder() noexcept { return watch_.recorder(); }
  // See Watch. Before the first call.
  void explain_by(Explainer* explainer) noexcept { watch_.explain_by(explainer); }
  // Calls make progress from now on even while nobody waits for them. Before the first call, and
  // only where time is real.
  void start_progress_thread();
  void stop_progress_thread() noexcept;

 private:
  friend class Request::State;
  class Token;

  // One round; with the token. Finished calls leave the list, failed ones are cancelled.
  void progress();
  Request begin(Team& team, const TeamCall& part, const std::function<Call()>& whole);
  Request take_care_of(std::unique_ptr<Request::State> state) noexcept;
  void get_going(Request::State& state);
  void look_at_copies();
  void take_news();
  void take_notices();
  bool hears(const Notice& notice);
  void look_after(Request::State& state, TimePoint now);
  void fail_if_lost(Request::State& state, TimePoint known_until);
  void close(Request::State& state) noexcept;
  void wait(Request::State& state);
  void progress_until(const Over& over, void (Transport::*asleep)(TimePoint));
  void rest(TimePoint until, void (Transport::*asleep)(TimePoint));
  bool goes_direct(const Call& call) const;
  Staging* staging_of(const Call& call);
  ProgressThread::Found move_on_what_is_alone();
  bool somebody_comes() const noexcept { return starters_ + waiters_ != 0 || tested_ || ending_; }
  void fail_all(const Error& error);
  void cancel(Request::State& state) noexcept;
  TimePoint next_deadline() noexcept;
  void set_time(Call& call) const noexcept;
  void release(Request::State& state) noexcept;
  void notify() noexcept;

  std::unique_ptr<Transport> transport_;
  Clock& clock_;
  Watch watch_;  // with the token
  Arena arena_;  // with the token
  // By device and where their slots are; with the token.
  std::map<std::pair<int, Memory>, Staging> staging_;
  bool on_devices_ = false;             // there were calls on device memory; with the token
  std::vector<Request::State*> calls_;  // under way; with the token
  struct Loss {
    int rank;
    std::string why;
    TimePoint known{};  // since when
  };
  std::vector<Loss> lost_;  // in the order in which they were learnt; with the token
  struct Dropped {
    GroupTag tag;
    int rank;
  };
  std::map<std::uint64_t, Dropped> dropped_;  // by id of the group; with the token
  bool started_ = false;  // a call, since the progress thread last looked; with the token
  bool sends_ = false;    // messages, now and then; with the token

  // The token is taken by whoever changes `token_taken_` to true. Who must sleep first counts
  // itself among starters_ or waiters_ and then looks once more; who makes news looks at the counts
  // afterwards.
  std::atomic<bool> token_taken_{false};
  std::atomic<int> starters_{0};  // threads that want the token from a waiter
  std::atomic<int> waiters_{0};   // threads that sleep until something changes
  std::atomic<bool> has_news_{false};
  std::mutex mutex_;  // of changed_, news_ and dropped_news_
  std::condition_variable changed_;
  std::vector<std::pair<int, std::string>> news_;  // deaths reported, not yet acted on
  std::vector<Dropped> dropped_news_;

  std::atomic<bool> tested_{false};   // by somebody, since the progress thread last looked
  std::atomic<bool> serving_{false};  // the progress thread has the token, and gives it back
  std::atomic<bool> ending_{false};   // it is to end
  std::unique_ptr<ProgressThread> thread_;
};

// The part of a call that both its request and the engine know.
class Request::State {
 public:
  State(Engine& engine, const Call& call)
      : engine_(&engine),
        work_(std::in_place_type<Execution>, engine.transport(), engine.arena_,
              engine.staging_of(call), call) {}
  // Of a call that the team has begun.
  State(Engine& engine, Team& team, TeamRun& run, const Call& call)
      : engine_(&engine),
        work_(std::in_place_type<TeamExecution>, engine.transport(), team, run, call) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  void wait();
  bool test();
  void cancel() noexcept;
  bool done() const noexcept { return done_; }
  Engine& engine() const noexcept { return *engine_; }  // of a call that is not done

 private:
  friend class Engine;

  TeamExecution* team() noexcept { return std::get_if<TeamExecution>(&work_); }
  Execution* execution() noexcept { return std::get_if<Execution>(&work_); }
  RunningCall& work() noexcept {
    return std::visit([](auto& work) -> RunningCall& { return work; }, work_);
  }
  void throw_error();

  Engine* engine_;  // null once the engine is gone
  std::variant<Execution, TeamExecution> work_;
  Watched watched_;
  std::atomic<bool> done_{false};  // set after the last change of work_
};

}  // namespace motley
