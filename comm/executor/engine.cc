#include "comm/executor/engine.h"

#include <algorithm>
#include <cassert>

namespace motley {

// Holds the right to use the transport. Urgent holders take it from a thread that waits.
class Engine::Token {
 public:
  explicit Token(Engine& engine) : engine_(engine) {
    std::unique_lock lock(engine.mutex_);
    if (engine.token_taken_) {
      ++engine.starters_;
      engine.transport_->wake();
      engine.changed_.wait(lock, [&] { return !engine.token_taken_; });
      --engine.starters_;
    }
    engine.token_taken_ = true;
  }
  // Takes the token only if it is free.
  Token(Engine& engine, std::try_to_lock_t) : engine_(engine) {
    const std::lock_guard lock(engine.mutex_);
    owns_ = !std::exchange(engine.token_taken_, true);
  }
  // Takes the token as soon as it is free, unless `done` comes first.
  Token(Engine& engine, const std::atomic<bool>& done) : engine_(engine) {
    std::unique_lock lock(engine.mutex_);
    ++engine.waiters_;
    engine.changed_.wait(lock,
                         [&] { return done || (!engine.token_taken_ && engine.starters_ == 0); });
    --engine.waiters_;
    owns_ = !done;
    if (owns_) engine.token_taken_ = true;
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  ~Token() {
    if (!owns_) return;
    {
      const std::lock_guard lock(engine_.mutex_);
      engine_.token_taken_ = false;
    }
    if (engine_.starters_ + engine_.waiters_ > 0) engine_.changed_.notify_all();
  }
  bool owned() const noexcept { return owns_; }

 private:
  Engine& engine_;
  bool owns_ = true;
};

Engine::Engine(std::unique_ptr<Transport> transport, Clock& clock)
    : transport_(std::move(transport)), clock_(clock) {}

Engine::~Engine() {
  const Token token(*this);
  for (Request::State* state : std::exchange(calls_, {})) {
    state->execution_.fail_aborted("its communicator was destroyed");
    transport_->cancel(state->execution_, state->execution_.id());
    state->execution_.release_memory();
    state->engine_ = nullptr;
    state->done_ = true;
  }
}

Request Engine::start(const Call& call) {
  auto state = std::make_unique<Request::State>(*this, call);
  const Token token(*this);
  calls_.push_back(state.get());
  take_news();
  fail_if_lost(*state, clock_.now());
  if (!state->execution_.finished()) state->execution_.start();
  if (state->execution_.finished()) {
    std::erase(calls_, state.get());
    close(*state);
  }
  return Request(std::move(state));
}

void Engine::poll() {
  const Token token(*this, std::try_to_lock);
  if (token.owned()) progress();
}

void Engine::retire_before(const GroupTag& tag) {
  const Token token(*this);
  transport_->retire_before(tag);
}

void Engine::report_lost(int rank, const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    news_.emplace_back(rank, why);
  }
  transport_->report_lost(rank, why);
  transport_->wake();
}

void Engine::progress() {
  transport_->poll();
  take_news();
  const TimePoint now = clock_.now();
  for (Request::State* state : calls_) {
    if (!lost_.empty()) fail_if_lost(*state, now - kLossGrace);
    if (now >= state->execution_.call().deadline) state->execution_.fail_timeout(now);
  }
  const auto finished = std::stable_partition(calls_.begin(), calls_.end(), [](const auto* state) {
    return !state->execution_.finished();
  });
  if (finished == calls_.end()) return;
  const std::vector<Request::State*> leaving(finished, calls_.end());
  calls_.erase(finished, calls_.end());
  for (Request::State* state : leaving) close(*state);
}

void Engine::take_news() {
  const std::lock_guard lock(mutex_);
  for (auto& [rank, why] : news_) lost_.emplace(rank, Loss{std::move(why), clock_.now()});
  news_.clear();
}

// A call with a member whose loss was known by then fails, even where this rank does not talk to
// that member itself.
void Engine::fail_if_lost(Request::State& state, TimePoint known_until) {
  for (const auto& [rank, loss] : lost_) {
    if (loss.known > known_until || !state.execution_.call().group->contains(rank)) continue;
    state.execution_.fail_lost(rank, loss.why);
  }
}

// After this nobody but the request touches the state: its owner may destroy it at once.
void Engine::close(Request::State& state) noexcept {
  if (state.execution_.error()) transport_->cancel(state.execution_, state.execution_.id());
  state.execution_.release_memory();
  const std::lock_guard lock(mutex_);
  state.done_ = true;
  if (waiters_ > 0) changed_.notify_all();
}

void Engine::wait(Request::State& state) {
  while (!state.done_) {
    const Token token(*this, state.done_);
    while (!state.done_ && starters_ == 0) {
      progress();
      if (!state.done_ && starters_ == 0) transport_->wait(next_deadline());
    }
  }
}

void Engine::cancel(Request::State& state) noexcept {
  const Token token(*this);
  if (state.done_) return;
  std::erase(calls_, &state);
  state.execution_.fail_aborted("its request was cancelled");
  close(state);
}

// Until when waiting makes sense: the next deadline, or the end of grace for the last loss.
TimePoint Engine::next_deadline() const noexcept {
  TimePoint first = TimePoint::max();
  for (const Request::State* state : calls_) {
    first = std::min(first, state->execution_.call().deadline);
  }
  const TimePoint now = lost_.empty() ? TimePoint{} : clock_.now();
  for (const auto& [rank, loss] : lost_) {
    if (loss.known + kLossGrace > now) first = std::min(first, loss.known + kLossGrace);
  }
  return first;
}

Request::State::~State() { cancel(); }

void Request::State::wait() {
  if (!done_) engine_->wait(*this);
  throw_error();
}

bool Request::State::test() {
  if (!done_) engine_->poll();
  if (done_) throw_error();
  return done_;
}

void Request::State::cancel() noexcept {
  if (!done_) engine_->cancel(*this);
}

void Request::State::throw_error() const {
  if (execution_.error()) throw *execution_.error();
}

Request::Request() noexcept = default;
Request::Request(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Request::Request(Request&&) noexcept = default;
Request& Request::operator=(Request&&) noexcept = default;
Request::~Request() = default;

void Request::wait() {
  if (state_) state_->wait();
}

bool Request::test() { return !state_ || state_->test(); }

void Request::cancel() noexcept {
  if (state_) state_->cancel();
}

}  // namespace motley
