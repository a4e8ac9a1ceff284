// runtime/synchronizer/rounds.h: averages in which all workers take part, but for which nobody
// waits who is late: its listener takes part while it computes.
//
// Round r begins when a worker activates it: the first whose step it is, or one that is drawn. That
// worker tells log2(N) others, each of them, once, log2(N) more, so that all know in log2(N) hops.
// Then all bring what they have and take what comes out. A worker that arrives after its round has
// begun takes the model as it is, and what it brings goes into the next one. Rounds are run by a
// thread of their own, so that the listener, who waits for none of them, always hears of deaths.
//   cost    log2(N) letters of each worker a round, and what the round itself costs
//   deaths  the others throw kPeerLost: every round needs the listener of each
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/request.h"
#include "runtime/lines.h"
#include "runtime/listener.h"
#include "runtime/synchronizer.h"

namespace motley::runtime {

// What a method does in its rounds. Calls are made with the rounds' lock, but for start().
class RoundRule {
 public:
  virtual ~RoundRule() = default;
  // Who activates `round`; -1: whoever comes first. The same on all workers.
  virtual int activator(std::int64_t round) = 0;
  // True if `round` begins only when all have arrived or finished.
  virtual bool waits_for_all(std::int64_t round) = 0;
  // This worker has made all its steps.
  virtual void finish() = 0;
  // Takes down what this worker brings; start() averages it; and then what has come out is used.
  virtual void bring(std::int64_t round) = 0;
  virtual Request start(std::int64_t round) = 0;
  virtual void use(std::int64_t round) = 0;
};

class Rounds final : private Hearer {
 public:
  // `name` of the method, for errors. `rule` and `comm` must outlive this. Made by all ranks in the
  // same order as they make calls of all ranks.
  Rounds(const char* name, Communicator& comm, const SynchronizerOptions& options, RoundRule& rule);
  ~Rounds() { stop(); }

  // This worker has made a step. `bring` adds it to what goes into rounds, then a round comes to
  // pass or, for a worker that is late, has; then `take` takes the model.
  SyncReport arrive(const std::function<void()>& bring, const std::function<void()>& take);
  // This worker makes no more steps, but takes part in the others' rounds until they have made all
  // theirs. Then the model is nobody's but the caller's.
  void finish();
  // Gives up what is under way: before what the rule uses is destroyed.
  void stop() noexcept;

 private:
  bool heard(int from, const Letter& letter) override;
  void lost(int from, const Error& error) noexcept override;
  void fail(const std::exception_ptr& error) noexcept;
  void want(std::int64_t round);  // with the lock
  void run() noexcept;
  void run_round(std::unique_lock<std::mutex>& lock);
  void tell(std::unique_lock<std::mutex>& lock, std::int64_t round);
  void wait_for(std::unique_lock<std::mutex>& lock, std::vector<Request>& calls);
  void end_threads() noexcept;
  void wait_for(std::unique_lock<std::mutex>& lock, const char* what, Duration timeout,
                const std::function<bool()>& over);
  void check() const;

  const char* name_;
  Communicator& comm_;
  SynchronizerOptions options_;
  RoundRule& rule_;
  Lines lines_;
  Group finishing_;
  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::int64_t wanted_ = -1;  // the latest round that somebody has activated
  std::int64_t begun_ = 0;  // rounds
  std::int64_t done_ = 0;   // begun_, or one less while one is under way
  std::int64_t own_ = 0;    // the round that the trainer's next step belongs to
  bool arrived_ = false;    // the trainer, in time for the round that is to bring next
  bool brought_ = false;    // this worker, in the latest round, what it had
  bool finished_ = false;
  bool stopping_ = false;
  std::vector<Request>* calls_ = nullptr;  // of the round under way, that are waited for
  std::exception_ptr error_;
  std::thread runner_;
  Listener listener_;  // ends first
};

}  // namespace motley::runtime
