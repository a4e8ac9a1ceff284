// wide/kernel/team.h: threads that work on one thing at a time, together.
//
//   Team team(2);
//   team.run([&](int thread) { …; team.meet(); …; });   // returns when all have
//
// The caller is thread 0; the others sleep between runs. What is run must not throw.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace motley::wide {

class Team {
 public:
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const noexcept { return size_; }
  void run(const std::function<void(int)>& body);
  // Inside a run: returns when all threads have called it as often.
  void meet() noexcept;

 private:
  void work(int thread);

  const int size_;
  const std::function<void(int)>* body_ = nullptr;
  std::atomic<int> runs_{0};     // begun; below 0: the end
  std::atomic<int> busy_{0};     // threads that are still in the run
  std::atomic<int> arrived_{0};  // at the current meeting
  std::atomic<int> meetings_{0};
  std::vector<std::thread> threads_;
};

}  // namespace motley::wide
