// test/support/device_streams.h: the streams of emulated devices: queues that are driven by who
// waits for them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "test/support/copy_order.h"

namespace motley::test {

class DeviceStreams {
 public:
  struct Queue;
  // The first `position` pieces of work of a queue.
  struct Place {
    std::shared_ptr<Queue> queue;
    std::uint64_t position = 0;
  };
  // Called before the first, after the last piece of work that runs.
  struct Brackets {
    std::function<void()> begin;
    std::function<void()> end;
  };

  DeviceStreams(std::uint64_t seed, Brackets brackets)
      : random_(seed), brackets_(std::move(brackets)) {}

  std::shared_ptr<Queue> create(int device);
  void enqueue(const std::shared_ptr<Queue>& queue, std::function<bool()> work);
  // Work that is this copy. Throws, and does nothing, if it meets another one out of order.
  void enqueue(const std::shared_ptr<Queue>& queue, std::function<bool()> work,
               const CopyOrder::Copy& copy);
  // What follows in `queue` waits for `place`.
  void hold(const std::shared_ptr<Queue>& queue, const Place& place);
  Place end_of(const std::shared_ptr<Queue>& queue);
  // Does at most one piece of work, of any stream. Throws what went wrong at or before `place`.
  bool look(const Place& place);
  // Does what is needed for `place`, and waits for what other threads do of it. Throws as look().
  void wait(const Place& place);
  // Everything that is in the queues of `device` now; errors stay for who waits.
  void wait_for_device(int device) noexcept;
  std::size_t unfinished();

 private:
  using Lock = std::unique_lock<std::mutex>;

  bool advance(Queue& queue, Lock& lock);
  bool run_head(Queue& queue, Lock& lock);
  void wait_until_done(const Place& place, Lock& lock);
  // Says that `place` is done, and what went wrong at or before it.
  void tell(const Place& place);
  // As it is behind the next piece of work.
  static CopyOrder::Place next_place(const Queue& queue);

  std::mutex mutex_;
  std::condition_variable moved_;
  std::mt19937_64 random_;
  Brackets brackets_;
  int running_ = 0;
  std::vector<std::shared_ptr<Queue>> queues_;
  CopyOrder order_;
};

}  // namespace motley::test
