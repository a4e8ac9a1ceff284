// moe/workers.h: threads that share independent tasks.
//
//   Workers workers(2);
//   workers.run(rows.size(), [&](std::size_t i) { … });   // returns when all tasks are done
//
// Which thread takes a task is not said, so a task's result must not depend on it. With one thread
// there is no other: tasks run in the caller, ascending.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace motley::moe {

class Workers {
 public:
  // The caller counts as one. Throws kInvalid below 1.
  explicit Workers(int threads = 1);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  // Throws what a task threw, one of them, when all threads have stopped; tasks that had not begun
  // then never do. One run at a time.
  void run(std::size_t tasks, const std::function<void(std::size_t)>& body);

 private:
  void serve();
  void take_tasks(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  const std::function<void(std::size_t)>* body_ = nullptr;
  std::size_t next_ = 0, tasks_ = 0;  // of the run under way
  int busy_ = 0;                      // threads inside a task
  std::exception_ptr error_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace motley::moe
