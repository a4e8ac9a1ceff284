// comm/transport/loss_news.h: ranks reported lost by any thread, until the transport's takes them.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace motley {

class LossNews {
 public:
  using Loss = std::pair<int, std::string>;  // rank, why

  void add(int rank, const std::string& why) {
    {
      const std::lock_guard lock(mutex_);
      losses_.emplace_back(rank, why);
    }
    any_.store(true, std::memory_order_release);
  }
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  std::vector<Loss> take() {
    const std::lock_guard lock(mutex_);
    any_.store(false, std::memory_order_relaxed);
    return std::exchange(losses_, {});
  }

 private:
  std::atomic<bool> any_{false};
  std::mutex mutex_;  // guards losses_
  std::vector<Loss> losses_;
};

}  // namespace motley
