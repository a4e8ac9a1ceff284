// comm/executor/progress_thread.h: takes care of the calls that nobody waits for.
//
// A thread that looks now and then whether calls are left alone: the youngest was started kAlone
// ago or longer, and since the last look nobody has waited, tested or started another. Such calls
// it moves on itself, asleep between messages, until they are over or somebody comes.
//
// Nobody hands it anything over, so that calls which are waited for at once, as most are, cost
// no more for it. It looks kShortestNap after it was needed and less and less often while it is
// not, at least every kLongestNap. When there was no call for that long it sleeps until one is
// started that does not complete at once; then it looks soon if it was needed before it fell
// asleep, and late if not, as programs go on as they began.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "comm/clock.h"

namespace motley {

class ProgressThread {
 public:
  static constexpr Duration kAlone = std::chrono::microseconds(50);
  static constexpr Duration kShortestNap = std::chrono::microseconds(50);
  static constexpr Duration kLongestNap = std::chrono::milliseconds(20);

  // What a look found.
  enum class Found : std::uint8_t {
    kNothing,  // no call is under way, and none was started since the last look
    kInCare,   // somebody makes progress, or will
    kServed,   // calls were left alone, and have been moved on
  };

  // `look` returns soon once it is to: whoever destroys this sees to that first.
  explicit ProgressThread(std::function<Found()> look);
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread();

  // A call was started. By who excludes a look meanwhile.
  void notice() noexcept {
    if (asleep_.load(std::memory_order_relaxed)) wake();
  }
  // Whether it looks no more before notice().
  bool asleep() const noexcept { return asleep_; }

 private:
  void run();
  void sleep();
  void wake() noexcept;

  std::function<Found()> look_;
  std::atomic<bool> asleep_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace motley
