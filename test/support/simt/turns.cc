#include "test/support/simt/turns.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/error.h"

namespace motley::simt {
namespace {

std::atomic<unsigned> at_once{1};

class Turns {
 public:
  explicit Turns(unsigned n) : there_(n, true) {}

  void await(unsigned i) {
    std::unique_lock lock(mutex_);
    constexpr std::chrono::minutes kLongest{10};
    if (changed_.wait_for(lock, kLongest, [&] { return turn_ == i; })) return;
    throw Error(ErrorCode::kTimeout, "a block waited 10 minutes for the others to meet");
  }
  void pass(unsigned i, bool comes_back) {
    const std::lock_guard lock(mutex_);
    there_[i] = comes_back;
    for (std::size_t k = 1; k <= there_.size(); ++k) {
      turn_ = static_cast<unsigned>((i + k) % there_.size());
      if (there_[turn_]) break;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> there_;
  unsigned turn_ = 0;
};

}  // namespace

AtOnce::AtOnce(unsigned blocks) { at_once = blocks; }
AtOnce::~AtOnce() { at_once = 1; }
unsigned blocks_at_once() noexcept { return at_once; }

void run_in_turns(unsigned n,
                  const std::function<void(unsigned i, const std::function<void()>& meet)>& body) {
  Turns turns(n);
  std::vector<std::exception_ptr> thrown(n);
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < n; ++i) {
      threads.emplace_back([&, i] {
        try {
          turns.await(i);
          body(i, [&turns, i] {
            turns.pass(i, true);
            turns.await(i);
          });
        } catch (...) {
          thrown[i] = std::current_exception();
        }
        turns.pass(i, false);
      });
    }
  }
  for (const std::exception_ptr& error : thrown) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace motley::simt
