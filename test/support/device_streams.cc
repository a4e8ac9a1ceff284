#include "test/support/device_streams.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace motley::test {

struct DeviceStreams::Queue {
  struct Piece {
    std::function<bool()> work;
    Place after;  // if it has a queue, it must be done first
  };
  int device = 0;
  std::deque<Piece> pieces;
  std::uint64_t done = 0;
  bool busy = false;  // its head runs on some thread
  std::exception_ptr error;
};

std::shared_ptr<DeviceStreams::Queue> DeviceStreams::create(int device) {
  const Lock lock(mutex_);
  // Those of streams that were destroyed stay until they are empty.
  std::erase_if(queues_, [this](const std::shared_ptr<Queue>& queue) {
    const bool over = queue.use_count() == 1 && queue->pieces.empty() && !queue->busy;
    if (over) order_.forget(queue.get());
    return over;
  });
  queues_.push_back(std::make_shared<Queue>());
  queues_.back()->device = device;
  return queues_.back();
}

void DeviceStreams::enqueue(const std::shared_ptr<Queue>& queue, std::function<bool()> work) {
  const Lock lock(mutex_);
  queue->pieces.push_back({std::move(work), {}});
}

void DeviceStreams::enqueue(const std::shared_ptr<Queue>& queue, std::function<bool()> work,
                            const CopyOrder::Copy& copy) {
  const Lock lock(mutex_);
  order_.copy(next_place(*queue), copy);
  queue->pieces.push_back({std::move(work), {}});
}

void DeviceStreams::hold(const std::shared_ptr<Queue>& queue, const Place& place) {
  const Lock lock(mutex_);
  if (place.queue == nullptr || place.queue == queue) return;
  order_.hold(next_place(*queue), {place.queue.get(), place.position});
  queue->pieces.push_back({[] { return true; }, place});
}

DeviceStreams::Place DeviceStreams::end_of(const std::shared_ptr<Queue>& queue) {
  const Lock lock(mutex_);
  return {queue, queue->done + queue->pieces.size()};
}

// Tries the head of the queue, or what it waits for. True if something was done.
bool DeviceStreams::advance(Queue& queue, Lock& lock) {
  if (queue.busy || queue.pieces.empty()) return false;
  const Place after = queue.pieces.front().after;
  const bool waits = after.queue != nullptr && after.queue->done < after.position;
  return waits ? advance(*after.queue, lock) : run_head(queue, lock);
}

bool DeviceStreams::run_head(Queue& queue, Lock& lock) {
  queue.busy = true;
  const std::function<bool()> work = std::move(queue.pieces.front().work);
  if (running_++ == 0) brackets_.begin();
  lock.unlock();
  bool finished = true;
  std::exception_ptr error;
  try {
    finished = work();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (--running_ == 0) brackets_.end();
  queue.busy = false;
  if (error && !queue.error) queue.error = error;
  if (finished) {
    queue.pieces.pop_front();
    ++queue.done;
    moved_.notify_all();
  } else {
    queue.pieces.front().work = work;
  }
  return finished;
}

void DeviceStreams::tell(const Place& place) {
  order_.told({place.queue.get(), place.position});
  if (place.queue->error) std::rethrow_exception(std::exchange(place.queue->error, nullptr));
}

CopyOrder::Place DeviceStreams::next_place(const Queue& queue) {
  return {&queue, queue.done + queue.pieces.size() + 1};
}

bool DeviceStreams::look(const Place& place) {
  if (place.queue == nullptr) return true;
  Lock lock(mutex_);
  if (place.queue->done < place.position && random_() % 2 == 0) {
    const std::size_t first = random_() % queues_.size();
    for (std::size_t i = 0; i < queues_.size(); ++i) {
      // Held by value: the list may grow while the lock is given up.
      const std::shared_ptr<Queue> queue = queues_[(first + i) % queues_.size()];
      if (advance(*queue, lock)) break;
    }
  }
  if (place.queue->done < place.position) return false;
  tell(place);
  return true;
}

void DeviceStreams::wait_until_done(const Place& place, Lock& lock) {
  while (place.queue->done < place.position) {
    // What another thread runs tells of its end; what waits for the host is tried again.
    if (!advance(*place.queue, lock)) moved_.wait_for(lock, std::chrono::milliseconds(1));
  }
}

void DeviceStreams::wait(const Place& place) {
  Lock lock(mutex_);
  wait_until_done(place, lock);
  tell(place);
}

void DeviceStreams::wait_for_device(int device) noexcept {
  Lock lock(mutex_);
  const std::vector<std::shared_ptr<Queue>> queues = queues_;
  for (const std::shared_ptr<Queue>& queue : queues) {
    if (queue->device != device) continue;
    const Place end{queue, queue->done + queue->pieces.size()};
    wait_until_done(end, lock);
    order_.told({queue.get(), end.position});
  }
}

std::size_t DeviceStreams::unfinished() {
  const Lock lock(mutex_);
  std::size_t count = 0;
  for (const std::shared_ptr<Queue>& queue : queues_) count += queue->pieces.size();
  return count;
}

}  // namespace motley::test
