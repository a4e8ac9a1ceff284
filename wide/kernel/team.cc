#include "wide/kernel/team.h"

namespace motley::wide {
namespace {

// Waits until `number` is no longer `old`: some microseconds awake, then asleep.
void await_change(const std::atomic<int>& number, int old) noexcept {
  for (int i = 0; i < 2000; ++i) {
    if (number.load(std::memory_order_acquire) != old) return;
  }
  number.wait(old, std::memory_order_acquire);
}

}  // namespace

Team::Team(int size) : size_(size) {
  for (int thread = 1; thread < size; ++thread) threads_.emplace_back([=, this] { work(thread); });
}

Team::~Team() {
  runs_.store(-1, std::memory_order_release);
  runs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(const std::function<void(int)>& body) {
  body_ = &body;
  busy_.store(size_ - 1, std::memory_order_relaxed);
  runs_.fetch_add(1, std::memory_order_acq_rel);
  if (size_ > 1) runs_.notify_all();
  body(0);
  for (int busy = busy_.load(std::memory_order_acquire); busy > 0;
       busy = busy_.load(std::memory_order_acquire)) {
    await_change(busy_, busy);
  }
}

void Team::work(int thread) {
  for (int seen = 0;;) {
    await_change(runs_, seen);
    seen = runs_.load(std::memory_order_acquire);
    if (seen < 0) return;
    (*body_)(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_all();
  }
}

void Team::meet() noexcept {
  if (size_ == 1) return;
  const int meeting = meetings_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    arrived_.store(0, std::memory_order_relaxed);
    meetings_.fetch_add(1, std::memory_order_acq_rel);
    meetings_.notify_all();
  } else {
    await_change(meetings_, meeting);
  }
}

}  // namespace motley::wide
