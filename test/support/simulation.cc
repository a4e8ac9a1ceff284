#include "test/support/simulation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <deque>
#include <exception>
#include <queue>
#include <utility>
#include <vector>

#include "comm/error.h"
#include "test/support/fiber.h"

namespace motley::test {
namespace {

class Simulation {
 public:
  Simulation(const SimOptions& options, const SimulatedRank& body);
  void run(const std::function<void(SimNetwork&)>& faults);

 private:
  enum State { kRunnable, kWaiting, kSleeping, kFinished };

  // The network's clock, as one rank knows it.
  class RankClock final : public Clock {
   public:
    RankClock(Simulation& simulation, int rank) : simulation_(simulation), rank_(rank) {}
    TimePoint now() const override { return simulation_.network_.clock().now(); }
    void sleep_until(TimePoint until) override { simulation_.sleep(rank_, until); }

   private:
    Simulation& simulation_;
    int rank_;
  };
  struct Rank {
    std::unique_ptr<RankClock> clock;
    std::unique_ptr<Fiber> fiber;
    State state = kRunnable;
    bool notified = false;     // since it last waited
    std::uint32_t pauses = 0;  // tells timers of earlier pauses from that of the present one
  };
  struct Timer {
    TimePoint time;
    int rank;
    std::uint32_t pause;
    bool operator>(const Timer& other) const { return time > other.time; }
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  SimOptions with_hooks(SimOptions options);
  void wait(int r, TimePoint until);
  void sleep(int r, TimePoint until);
  void pause(int r, State state, TimePoint until);
  void notify(int r);
  void wake(int r);
  void resume(int r);
  bool let_time_pass();
  void give_up();

  SimNetwork network_;
  std::vector<Rank> ranks_;
  std::deque<int> runnable_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::exception_ptr error_;
  bool given_up_ = false;
};

Simulation::Simulation(const SimOptions& options, const SimulatedRank& body)
    : network_(with_hooks(options)), ranks_(static_cast<std::size_t>(options.topology.ranks())) {
  for (int r = 0; r < options.topology.ranks(); ++r) {
    rank(r).clock = std::make_unique<RankClock>(*this, r);
    rank(r).fiber = std::make_unique<Fiber>(
        [this, r, &body] { body(r, network_.transport(r), *rank(r).clock); });
    runnable_.push_back(r);
  }
}

SimOptions Simulation::with_hooks(SimOptions options) {
  options.block = [this](int r, TimePoint until) { wait(r, until); };
  options.notify = [this](int r) { notify(r); };
  return options;
}

void Simulation::run(const std::function<void(SimNetwork&)>& faults) {
  if (faults) faults(network_);
  while (!runnable_.empty() || let_time_pass()) {
    if (runnable_.empty()) continue;
    const int r = runnable_.front();
    runnable_.pop_front();
    resume(r);
  }
  give_up();
  if (error_) std::rethrow_exception(error_);
}

void Simulation::resume(int r) {
  try {
    rank(r).fiber->resume();
  } catch (...) {
    if (!error_ && network_.is_alive(r)) error_ = std::current_exception();
  }
  if (rank(r).fiber->finished()) rank(r).state = kFinished;
}

// The next event, be it of the network or the end of a pause; false if there is none.
bool Simulation::let_time_pass() {
  const auto is_over = [&](const Timer& timer) {
    const Rank& at = rank(timer.rank);
    return at.pauses != timer.pause || at.state == kRunnable || at.state == kFinished;
  };
  while (!timers_.empty() && is_over(timers_.top())) timers_.pop();
  // What the network has ready may turn out to be nothing.
  const bool network_first = timers_.empty() || network_.next_event() <= timers_.top().time;
  if (network_first && network_.step()) return true;
  if (timers_.empty()) return false;
  const Timer timer = timers_.top();
  network_.advance_to(timer.time);
  wake(timer.rank);
  return true;
}

void Simulation::wait(int r, TimePoint until) {
  if (!std::exchange(rank(r).notified, false)) pause(r, kWaiting, until);
  rank(r).notified = false;
}

void Simulation::sleep(int r, TimePoint until) {
  if (until > network_.clock().now()) pause(r, kSleeping, until);
  if (!network_.is_alive(r)) {
    throw Error(ErrorCode::kAborted, fmt::format("rank {} was killed in its sleep.", r), {r});
  }
}

void Simulation::pause(int r, State state, TimePoint until) {
  Rank& me = rank(r);
  me.state = state;
  ++me.pauses;
  if (until != TimePoint::max()) timers_.push({until, r, me.pauses});
  if (!given_up_) me.fiber->suspend();
  if (given_up_) {
    me.state = kRunnable;
    throw Error(ErrorCode::kAborted, fmt::format("rank {}: the simulation was given up.", r), {r});
  }
}

void Simulation::notify(int r) {
  rank(r).notified = true;
  if (rank(r).state == kWaiting || !network_.is_alive(r)) wake(r);
}

void Simulation::wake(int r) {
  if (rank(r).state != kWaiting && rank(r).state != kSleeping) return;
  rank(r).state = kRunnable;
  runnable_.push_back(r);
}

// Nothing can happen any more. Ranks that are not done are left by an exception and named.
void Simulation::give_up() {
  std::vector<int> blocked;
  given_up_ = true;
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (rank(r).state == kFinished) continue;
    blocked.push_back(r);
    while (!rank(r).fiber->finished()) {
      try {
        rank(r).fiber->resume();
      } catch (...) {  // its own end: the one that we made
      }
    }
  }
  if (blocked.empty() || error_) return;
  error_ = std::make_exception_ptr(
      Error(ErrorCode::kTimeout,
            fmt::format("simulation: after {:.6f} s of virtual time nothing is left that could "
                        "happen, but {} of {} ranks wait: {}. Look at what they wait for.",
                        to_seconds(network_.clock().now().time_since_epoch()), blocked.size(),
                        ranks_.size(), fmt::join(blocked, ", ")),
            blocked));
}

}  // namespace

void run_simulated(const SimOptions& options, const SimulatedRank& body,
                   const std::function<void(SimNetwork&)>& faults) {
  Simulation(options, body).run(faults);
}

}  // namespace motley::test
