// comm/executor/watch.h: keeps an eye on the calls of one rank: notes them in the recorder, hears
// what other ranks have to say of them, and finds out why one is late.
#pragma once

#include <vector>

#include "comm/clock.h"
#include "comm/control/diagnosis.h"
#include "comm/executor/call.h"
#include "comm/executor/notices.h"
#include "comm/executor/running_call.h"
#include "comm/recorder.h"
#include "comm/transport/team.h"
#include "comm/transport/transport.h"

namespace motley {

// Knows where other ranks are. None of its calls waits for anybody.
class Explainer {
 public:
  virtual ~Explainer() = default;
  // `call` is late: begins to find out where its members are, for explain().
  virtual void ask(const Call& call) = 0;
  virtual Diagnosis explain(const Call& call, TimePoint now) = 0;
};

// What the watch knows of one call.
struct Watched {
  std::uint64_t ticket = 0;  // of the recorder
  std::uint64_t messages = 0;
  TimePoint next = TimePoint::max();  // when to look after it
  bool questioned = false;  // the ranks that it waits for were asked whether they are in it, too
};

class Watch {
 public:
  // After this long the ranks that a call waits for are asked whether they are in the same call:
  // one that never will be need not have sent a message from which that could be seen.
  static constexpr Duration kLate = std::chrono::milliseconds(400);
  // So much before its deadline it is found out who is behind; sooner if little time is allowed.
  static constexpr Duration kBeforeDeadline = std::chrono::milliseconds(250);

  explicit Watch(Transport& transport) : notices_(transport) {}

  Recorder& recorder() noexcept { return recorder_; }
  Notices& notices() noexcept { return notices_; }
  // Who can tell where others are; null: nobody. Outlives its use.
  void explain_by(Explainer* explainer) noexcept { explainer_ = explainer; }

  void begin(Watched& watched, const Call& call, const Fingerprint& fingerprint);
  // `messages` with `bytes` in all have been received for it.
  void arrived(Watched& watched, std::uint64_t messages, std::uint64_t bytes, TimePoint now);
  // To be called at watched.next, with the ranks that the call waits for.
  void look(Watched& watched, const Call& call, const Fingerprint& fingerprint,
            const std::vector<int>& awaited, TimePoint now);
  // Who is behind in a call whose deadline has passed.
  Diagnosis explain(const Call& call, TimePoint now);
  // `work` is over: notes it, and tells the others of a disagreement.
  void end(Watched& watched, const RunningCall& work, TimePoint now);
  // A call that was complete when it began. It is noted with the time at which this rank last
  // looked at its clock.
  void completed_at_once(const TeamCall& call) noexcept;

 private:
  Recorder recorder_;
  Notices notices_;
  Explainer* explainer_ = nullptr;
};

}  // namespace motley
