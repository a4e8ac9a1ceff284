#include "comm/executor/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <thread>

#include "comm/error.h"
#include "comm/transport/device_messages.h"
#include "comm/transport/pause.h"

namespace motley {
namespace {

constexpr Duration kFarewell = std::chrono::milliseconds(100);

}  // namespace

// Holds the right to use the transport. Urgent holders take it from a thread that waits.
class Engine::Token {
 public:
  explicit Token(Engine& engine) : engine_(engine) {
    if (take()) return;
    ++engine.starters_;
    engine.transport_->wake();
    std::unique_lock lock(engine.mutex_);
    engine.changed_.wait(lock, [&] { return take(); });
    --engine.starters_;
  }
  // Takes the token only if it is free.
  Token(Engine& engine, std::try_to_lock_t) : engine_(engine), owns_(take()) {}
  // Takes the token as soon as it is free, unless `over` comes first.
  Token(Engine& engine, const Over& over) : engine_(engine) {
    owns_ = engine.starters_ == 0 && !over() && take();
    if (owns_ || over()) return;
    ++engine.waiters_;
    if (engine.serving_) engine.transport_->wake();
    std::unique_lock lock(engine.mutex_);
    engine.changed_.wait(lock, [&] {
      if (over()) return true;
      owns_ = engine.starters_ == 0 && take();
      return owns_;
    });
    --engine.waiters_;
  }
  Token(const Token&) = delete;
  Token& operator=(const Token&) = delete;
  ~Token() {
    if (!owns_) return;
    engine_.token_taken_ = false;
    engine_.notify();
  }
  bool owned() const noexcept { return owns_; }

 private:
  bool take() noexcept {
    return !engine_.token_taken_.load(std::memory_order_relaxed) &&
           !engine_.token_taken_.exchange(true);
  }

  Engine& engine_;
  bool owns_ = true;
};

Engine::Engine(std::unique_ptr<Transport> transport, Clock& clock)
    : transport_(std::move(transport)), clock_(clock), watch_(*transport_) {}

Engine::~Engine() {
  stop_progress_thread();
  const Token token(*this);
  for (Request::State* state : std::exchange(calls_, {})) {
    state->work().fail_aborted("its communicator was destroyed");
    release(*state);
    state->engine_ = nullptr;
    state->done_ = true;
  }
  // What others are to be told is on its way before this rank is gone.
  const TimePoint patience = clock_.now() + kFarewell;
  while (watch_.notices().sending() && clock_.now() < patience) {
    if (!transport_->poll()) transport_->wait(patience);
  }
}

// Wakes those who sleep until something changes: it has.
void Engine::notify() noexcept {
  if (starters_ + waiters_ == 0) return;
  { const std::lock_guard lock(mutex_); }  // who counted itself sleeps now, or looks once more
  changed_.notify_all();
}

Request Engine::start(Call call) {
  const Token token(*this);
  on_devices_ = on_devices_ || call.on_device();
  call.direct = goes_direct(call);
  if (TeamExecution::runs(call.algorithm)) {
    return begin(*call.team, TeamExecution::part_of(call), [&call] { return call; });
  }
  set_time(call);
  Request request = take_care_of(std::make_unique<Request::State>(*this, call));
  sends_ = sends_ || (call.kind == CallKind::kSendRecv && call.out.data == nullptr);
  return request;
}

Request Engine::start(Team& team, const TeamCall& part, const std::function<Call()>& whole) {
  const Token token(*this);
  return begin(team, part, whole);
}

Request Engine::begin(Team& team, const TeamCall& part, const std::function<Call()>& whole) {
  TeamRun& run = team.begin(part);
  if (sends_ && run.state == TeamRun::State::kDone) progress();  // see there
  if (run.state == TeamRun::State::kDone &&
      !watch_.notices().keeps_for(part.id, *part.group, true)) {
    team.end(run);
    watch_.completed_at_once(part);
    return Request();
  }
  Call call = whole();
  set_time(call);
  return take_care_of(std::make_unique<Request::State>(*this, team, run, call));
}

// A request that went while the token is held would wait for it for ever, so whatever goes wrong is
// told through the request.
Request Engine::take_care_of(std::unique_ptr<Request::State> state) noexcept {
  RunningCall& work = state->work();
  try {
    get_going(*state);
  } catch (const Error& error) {
    work.failed(0, error);
  } catch (const std::exception& error) {
    work.failed(0, Error(ErrorCode::kAborted, error.what()));
  }
  if (work.finished()) {
    std::erase(calls_, state.get());
    close(*state);
  } else {
    started_ = true;
    if (thread_) thread_->notice();
  }
  return Request(std::move(state));
}

void Engine::get_going(Request::State& state) {
  if (auto* const team = state.team()) team->advance();
  if (sends_) progress();
  calls_.push_back(&state);
  take_news();
  RunningCall& work = state.work();
  watch_.begin(state.watched_, work.call(), work.fingerprint());
  transport_->open(work, work.id(), work.fingerprint());
  fail_if_lost(state, clock_.now());
  if (const auto told = watch_.notices().take_kept(work.id(), *work.call().group, work.complete()))
    work.fail_told(*told);
  if (work.finished()) return;
  if (auto* const execution = state.execution()) {
    execution->start();
  } else {
    state.team()->start();
  }
}

void Engine::set_time(Call& call) const noexcept {
  call.started = clock_.now();
  call.deadline = call.started + call.timeout;
}

void Engine::poll() {
  tested_.store(true, std::memory_order_relaxed);
  const Token token(*this, std::try_to_lock);
  if (token.owned()) progress();
}

void Engine::use_links(const Topology& topology) {
  const Token token(*this);
  transport_->use_links(topology);
}

void Engine::alone(const std::function<void()>& work) {
  const Token token(*this);
  work();
}

void Engine::retire_before(const GroupTag& tag) {
  const Token token(*this);
  transport_->retire_before(tag);
  std::erase_if(dropped_, [&tag](const auto& each) { return each.second.tag < tag; });
}

// Who receives says what is wrong with a message before it takes part in a later call: whoever
// sends messages hears that before its own part of such a call counts as done.
void Engine::progress() {
  if (!staging_.empty()) look_at_copies();
  transport_->poll();
  for (Request::State* state : calls_) {
    if (auto* const team = state->team()) team->advance();
  }
  if (sends_) transport_->poll();
  take_news();
  take_notices();
  const TimePoint now = clock_.now();
  for (Request::State* state : calls_) {
    if (!lost_.empty() || !dropped_.empty()) fail_if_lost(*state, now - kLossGrace);
    look_after(*state, now);
  }
  const auto finished = std::stable_partition(
      calls_.begin(), calls_.end(), [](auto* state) { return !state->work().finished(); });
  if (finished == calls_.end()) return;
  const std::vector<Request::State*> leaving(finished, calls_.end());
  calls_.erase(finished, calls_.end());
  for (Request::State* state : leaving) close(*state);
}

// Before the transport is polled, as what goes on then may post what a poll completes at once.
void Engine::look_at_copies() {
  const TimePoint now = clock_.now();
  for (Request::State* state : calls_) {
    if (auto* const execution = state->execution()) execution->look_at_copies(now);
  }
}

void Engine::look_after(Request::State& state, TimePoint now) {
  RunningCall& work = state.work();
  watch_.arrived(state.watched_, work.messages(), work.bytes(), now);
  const Call& call = work.call();
  if (now >= state.watched_.next) {
    watch_.look(state.watched_, call, work.fingerprint(), work.awaited(), now);
  }
  if (now >= call.deadline) work.fail_timeout(now, watch_.explain(call, now));
}

// Nobody touches the buffers of a finished call from now on.
void Engine::release(Request::State& state) noexcept {
  RunningCall& work = state.work();
  if (work.error()) {
    transport_->cancel(work, work.id());
  } else {
    transport_->close(work.id());
  }
  if (auto* const team = state.team()) return team->close();
  std::get<Execution>(state.work_).release_memory();
}

// After this nobody but the request touches the state: its owner may destroy it at once.
void Engine::close(Request::State& state) noexcept {
  release(state);
  const RunningCall& work = state.work();
  watch_.end(state.watched_, work, clock_.now());
  state.done_ = true;
  notify();
}

void Engine::progress_until(const Over& over, void (Transport::*asleep)(TimePoint)) {
  while (!over()) {
    const Token token(*this, over);
    while (!over() && starters_ == 0) {
      progress();
      if (!over() && starters_ == 0) rest(next_deadline(), asleep);
    }
  }
}

void Engine::wait(Request::State& state) {
  progress_until([&state] { return state.done_.load(); }, &Transport::wait);
}

bool Engine::wait(const Event& event, TimePoint deadline) {
  const TimePoint start = clock_.now();
  for (TimePoint now = start; !event.done(); now = clock_.now()) {
    if (now >= deadline) return false;
    const Token token(*this);
    progress();
    rest(std::min({deadline, next_deadline(), next_look(now, start)}), &Transport::wait);
  }
  return true;
}

// The end of work on a device wakes nobody, and may be nearer than it takes to fall asleep.
void Engine::rest(TimePoint until, void (Transport::*asleep)(TimePoint)) {
  constexpr Duration kTooShort = std::chrono::microseconds(100);
  const bool looks = on_devices_ && &clock_ == &Clock::real();
  const Duration left = looks ? until - clock_.now() : Duration::max();
  if (left <= Duration::zero()) {
    pause_briefly();
  } else if (left < kTooShort) {
    std::this_thread::yield();
  } else {
    (transport_.get()->*asleep)(until);
  }
}

// Whether the transport moves its messages in device memory.
bool Engine::goes_direct(const Call& call) const {
  const DeviceMessages* const messages = transport_->device_messages();
  if (!call.on_device() || TeamExecution::runs(call.algorithm) || messages == nullptr) return false;
  if (messages->device() == current_device()) return true;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: device {} is current, but this rank's messages are on device {}, on "
                          "which it joined. Call with that one current, or set "
                          "MOTLEY_UCX_DEVICE=staged.",
                          name(call.kind), current_device(), messages->device()));
}

Staging* Engine::staging_of(const Call& call) {
  if (!call.on_device()) return nullptr;
  const Memory memory = call.direct ? Memory::kDevice : Memory::kHost;
  return &staging_.try_emplace({current_device(), memory}, memory).first->second;
}

void Engine::start_progress_thread() {
  thread_ = std::make_unique<ProgressThread>([this] { return move_on_what_is_alone(); });
}

void Engine::stop_progress_thread() noexcept {
  if (!thread_) return;
  ending_ = true;
  transport_->wake();
  thread_.reset();
}

ProgressThread::Found Engine::move_on_what_is_alone() {
  using Found = ProgressThread::Found;
  const bool tested = tested_.exchange(false);
  const Token token(*this, std::try_to_lock);
  if (!token.owned() || starters_ + waiters_ != 0) return Found::kInCare;
  const bool started = std::exchange(started_, false);
  if (calls_.empty()) return started ? Found::kInCare : Found::kNothing;
  const TimePoint youngest = calls_.back()->work().call().started;
  if (tested || clock_.now() - youngest < ProgressThread::kAlone) return Found::kInCare;
  serving_ = true;
  try {
    while (!calls_.empty() && !somebody_comes()) {
      progress();
      if (!calls_.empty() && !somebody_comes()) rest(next_deadline(), &Transport::sleep);
    }
  } catch (const Error& error) {  // whoever waits next is told through the calls
    fail_all(error);
  } catch (const std::exception& error) {
    fail_all(Error(ErrorCode::kAborted, error.what()));
  }
  serving_ = false;
  return Found::kServed;
}

void Engine::fail_all(const Error& error) {
  for (Request::State* state : std::exchange(calls_, {})) {
    state->work().fail(error);
    close(*state);
  }
}

void Engine::cancel(Request::State& state) noexcept {
  const Token token(*this);
  if (state.done_) return;
  std::erase(calls_, &state);
  state.work().fail_aborted("its request was cancelled");
  close(state);
}

// Until when waiting makes sense: the next deadline, the end of grace for the last loss, or when
// work on a device may be done.
TimePoint Engine::next_deadline() noexcept {
  TimePoint first = TimePoint::max();
  for (Request::State* state : calls_) {
    first = std::min({first, state->work().call().deadline, state->watched_.next});
  }
  const TimePoint now = lost_.empty() && !on_devices_ ? TimePoint{} : clock_.now();
  for (Request::State* state : calls_) {
    if (!on_devices_) break;
    auto* const execution = state->execution();
    first = std::min(
        first, execution != nullptr ? execution->next_look(now) : state->team()->next_look(now));
  }
  for (const Loss& loss : lost_) {
    if (loss.known + kLossGrace > now) first = std::min(first, loss.known + kLossGrace);
  }
  return first;
}

}  // namespace motley
