#include "moe/workers.h"

#include <fmt/format.h>

#include "comm/error.h"

namespace motley::moe {

Workers::Workers(int threads) {
  if (threads < 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe workers: {} threads. There must be at least 1.", threads));
  }
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::run(std::size_t tasks, const std::function<void(std::size_t)>& body) {
  if (threads_.empty() || tasks < 2) {
    for (std::size_t i = 0; i < tasks; ++i) body(i);
    return;
  }
  std::unique_lock lock(mutex_);
  body_ = &body;
  next_ = 0;
  tasks_ = tasks;
  error_ = nullptr;
  begun_.notify_all();
  take_tasks(lock);
  ended_.wait(lock, [this] { return busy_ == 0; });
  if (error_) std::rethrow_exception(error_);
}

void Workers::serve() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    take_tasks(lock);
    begun_.wait(lock, [this] { return over_ || next_ < tasks_; });
  }
}

void Workers::take_tasks(std::unique_lock<std::mutex>& lock) {
  while (next_ < tasks_) {
    const std::size_t mine = next_++;
    const auto* const body = body_;
    ++busy_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*body)(mine);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error) {
      error_ = error;
      next_ = tasks_;
    }
    if (--busy_ == 0) ended_.notify_all();
  }
}

}  // namespace motley::moe
