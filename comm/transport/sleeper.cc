#include "comm/transport/sleeper.h"

namespace motley {

Sleeper::~Sleeper() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Sleeper::begin(TimePoint until) {
  {
    const std::lock_guard lock(mutex_);
    asleep_ = true;
    ending_ = false;
    until_ = until;
  }
  changed_.notify_all();
}

// A wake-up that nobody needs would end the next wait at once, and that one the next: none is sent.
void Sleeper::end() {
  std::unique_lock lock(mutex_);
  if (!asleep_) return;
  ending_ = true;
  watched_.wake();
  changed_.wait(lock, [this] { return !asleep_; });
}

void Sleeper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return asleep_ || stopping_; });
    if (stopping_) return;
    const TimePoint until = until_;
    lock.unlock();
    watched_.wait(until);
    lock.lock();
    if (!ending_) other_.wake();
    asleep_ = false;
    changed_.notify_all();
  }
}

}  // namespace motley
