#include "comm/executor/progress_thread.h"

#include <algorithm>
#include <utility>

namespace motley {

ProgressThread::ProgressThread(std::function<Found()> look)
    : look_(std::move(look)), thread_([this] { run(); }) {}

ProgressThread::~ProgressThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void ProgressThread::run() {
  Duration nap = kLongestNap;
  bool needed = false;  // since it last slept
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Found found = look_();
    if (found == Found::kServed) {
      nap = kShortestNap;
      needed = true;
    } else if (found == Found::kNothing && nap == kLongestNap) {
      sleep();
      nap = std::exchange(needed, false) ? kShortestNap : kLongestNap;
    }
    lock.lock();
    changed_.wait_for(lock, nap, [this] { return stopping_; });
    nap = std::min(2 * nap, kLongestNap);
  }
}

// Who starts a call after the last look sees that nobody will look again by himself.
void ProgressThread::sleep() {
  asleep_ = true;
  if (look_() == Found::kNothing) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !asleep_ || stopping_; });
  }
  asleep_ = false;
}

void ProgressThread::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    asleep_ = false;
  }
  changed_.notify_one();
}

}  // namespace motley
