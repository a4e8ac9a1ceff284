// comm/control/awaited_peers.h: whom this rank waits for, as its transport tells the control
// thread.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

namespace motley {

// Any thread. What was told stands until something else is told: a rank that computes meanwhile
// waits for nobody, but loses nothing by knowing who can be reached.
class AwaitedPeers {
 public:
  void tell(std::vector<int> ranks) {
    const std::lock_guard lock(mutex_);
    ranks_ = std::move(ranks);
  }
  std::vector<int> ranks() const {
    const std::lock_guard lock(mutex_);
    return ranks_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> ranks_;  // guarded by mutex_; ascending
};

}  // namespace motley
