#include "runtime/synchronizer/rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::runtime {
namespace {

constexpr std::uint64_t kFinishing = std::uint64_t{1} << 56;  // ids of groups

// To those 1, 2, 4, … ranks ahead goes the news of a round.
std::vector<int> neighbours(int rank, int size) {
  std::vector<int> ranks;
  for (int distance = 1; distance < size; distance *= 2) ranks.push_back((rank + distance) % size);
  return ranks;
}

// Who is dead shows where its letters are waited for, whether or not there would be any.
std::vector<int> all_but(int rank, std::vector<int> ranks) {
  std::erase(ranks, rank);
  return ranks;
}

}  // namespace

Rounds::Rounds(const char* name, Communicator& comm, const SynchronizerOptions& options,
               RoundRule& rule)
    : name_(name),
      comm_(comm),
      options_(options),
      rule_(rule),
      lines_(comm),
      finishing_(comm.world().ranks(), {.id = kFinishing, .epoch = comm.world().next_call()}),
      listener_(lines_, all_but(comm.rank(), comm.world().ranks()), options.finish_timeout, *this) {
  runner_ = std::thread([this] { run(); });
}

SyncReport Rounds::arrive(const std::function<void()>& bring, const std::function<void()>& take) {
  const TimePoint called = comm_.clock().now();
  TimePoint together = called;
  std::unique_lock lock(mutex_);
  check();
  bring();
  const bool under_way = begun_ != done_;
  if (under_way ? !brought_ : begun_ == own_) arrived_ = true;
  changed_.notify_all();
  // Not the next, which another worker may begin meanwhile, and which may wait for this one.
  const std::int64_t last = std::max(begun_, own_ + 1);
  if (begun_ == own_) {
    const int activator = rule_.activator(own_);
    const bool activates = activator < 0 || activator == comm_.rank();
    if (activates) want(own_);
    wait_for(lock, "a round to be activated", options_.timeout, [this] { return begun_ > own_; });
    if (!activates) together = comm_.clock().now();
  }
  wait_for(lock, "a round", options_.timeout, [&] { return done_ >= last; });
  own_ = done_;
  take();
  return {.group = comm_.world().ranks(),
          .waiting = together - called,
          .averaging = comm_.clock().now() - together};
}

void Rounds::finish() {
  std::unique_lock lock(mutex_);
  check();
  finished_ = true;
  rule_.finish();
  changed_.notify_all();
  // Others may wait for this worker to activate a round, and draw it no more after that.
  wait_for(lock, "a round", options_.timeout, [this] { return done_ == begun_; });
  if (comm_.size() > 1 && rule_.activator(begun_) == comm_.rank()) {
    const std::int64_t own = begun_;
    want(own);
    wait_for(lock, "a round", options_.timeout, [&] { return done_ > own; });
  }
  std::vector<std::int64_t> last = {begun_};
  lock.unlock();
  comm_.all_reduce(last, ReduceOp::kMax, {.group = &finishing_, .timeout = options_.finish_timeout})
      .wait();
  lock.lock();
  wait_for(lock, "the last round", options_.timeout, [&] { return done_ >= last[0]; });
  lock.unlock();
  // Nobody stops listening while another may still tell of the last round.
  comm_.barrier({.group = &finishing_, .timeout = options_.finish_timeout}).wait();
  end_threads();
}

void Rounds::stop() noexcept {
  fail(std::make_exception_ptr(Error(ErrorCode::kAborted, "rounds: given up by this worker.")));
  end_threads();
}

void Rounds::end_threads() noexcept {
  listener_.stop();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (runner_.joinable()) runner_.join();
}

bool Rounds::heard(int, const Letter& letter) {
  const std::lock_guard lock(mutex_);
  want(letter[0]);
  return true;
}

void Rounds::lost(int, const Error& error) noexcept { fail(std::make_exception_ptr(error)); }

void Rounds::fail(const std::exception_ptr& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  if (calls_ != nullptr) {
    for (Request& call : *calls_) call.cancel();
  }
  changed_.notify_all();
}

// Another worker may be rounds ahead where not all average with all.
void Rounds::want(std::int64_t round) {
  wanted_ = std::max(wanted_, round);
  changed_.notify_all();
}

void Rounds::run() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return error_ || stopping_ || begun_ <= wanted_; });
    if (error_ || stopping_) return;
    try {
      run_round(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
      if (!error_) error_ = std::current_exception();
      changed_.notify_all();
      return;
    }
  }
}

// With `lock`, which is open while others are waited for.
void Rounds::run_round(std::unique_lock<std::mutex>& lock) {
  const std::int64_t round = begun_++;
  brought_ = false;
  changed_.notify_all();
  tell(lock, round);
  if (rule_.waits_for_all(round)) {
    wait_for(lock, "the trainer in a round of all", options_.timeout,
             [this] { return arrived_ || finished_; });
  }
  arrived_ = false;
  brought_ = true;
  rule_.bring(round);
  lock.unlock();
  std::vector<Request> calls;
  calls.push_back(rule_.start(round));
  lock.lock();
  wait_for(lock, calls);
  rule_.use(round);
  ++done_;
  changed_.notify_all();
}

void Rounds::tell(std::unique_lock<std::mutex>& lock, std::int64_t round) {
  Letter letter{round, 0};
  std::vector<Request> calls;
  lock.unlock();
  for (const int to : neighbours(comm_.rank(), comm_.size())) {
    calls.push_back(lines_.send(view_of(letter), to, options_.timeout));
  }
  lock.lock();
  wait_for(lock, calls);
}

// `calls` outlive this: fail() may cancel them until calls_ is null.
void Rounds::wait_for(std::unique_lock<std::mutex>& lock, std::vector<Request>& calls) {
  check();
  calls_ = &calls;
  lock.unlock();
  std::exception_ptr error;
  try {
    for (Request& call : calls) call.wait();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  calls_ = nullptr;
  check();
  if (error) std::rethrow_exception(error);
}

void Rounds::wait_for(std::unique_lock<std::mutex>& lock, const char* what, Duration timeout,
                      const std::function<bool()>& over) {
  const bool in_time = changed_.wait_for(lock, timeout, [&] { return error_ || over(); });
  check();
  if (in_time) return;
  throw Error(ErrorCode::kTimeout,
              fmt::format("{}: rank {} waited {:.1f} s for {}, after {} rounds. Look for a worker "
                          "that is stuck, or raise the timeout.",
                          name_, comm_.rank(), to_seconds(timeout), what, done_));
}

void Rounds::check() const {
  if (error_) std::rethrow_exception(error_);
}

}  // namespace motley::runtime
