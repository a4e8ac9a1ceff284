// comm/transport/event_queue.h: what happens next in virtual time.
//
// Events that are put in in the order in which they happen, as most are where links are alike,
// stand in line; the others are in a 4-ary heap. Entries have 16 bytes. Events at the same time
// come out in the order of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley {

class EventQueue {
 public:
  static constexpr std::uint32_t kMaxSlot = (1u << 24) - 1;

  struct Event {
    std::int64_t time = 0;    // ns
    std::uint64_t order = 0;  // 40 bits that break ties, 24 bits of slot
    std::uint32_t slot() const noexcept { return static_cast<std::uint32_t>(order) & kMaxSlot; }
    bool before(const Event& other) const noexcept {
      return time != other.time ? time < other.time : order < other.order;
    }
  };

  bool empty() const noexcept { return first_ == line_.size() && heap_.empty(); }
  const Event& top() const noexcept { return line_is_first() ? line_[first_] : heap_.front(); }

  // A new event; numbered after all before it.
  void push(std::int64_t time, std::uint32_t slot) { push({time, numbers_++ << 24 | slot}); }
  // An event put off: it keeps its number, and so its place among those at its new time.
  void push(const Event& event) {
    if (first_ != line_.size() && event.before(line_.back())) {
      push_heap(event);
    } else {
      line_.push_back(event);
    }
  }

  Event pop() {
    if (!line_is_first()) return pop_heap();
    const Event event = line_[first_++];
    if (first_ == line_.size() || first_ == kMostPassed) {  // forget those that have passed
      line_.erase(line_.begin(), line_.begin() + static_cast<std::ptrdiff_t>(first_));
      first_ = 0;
    }
    return event;
  }

 private:
  static constexpr std::size_t kMostPassed = 1 << 16;

  bool line_is_first() const noexcept {
    return first_ != line_.size() && (heap_.empty() || line_[first_].before(heap_.front()));
  }

  void push_heap(const Event& event) {
    std::size_t i = heap_.size();
    heap_.push_back(event);
    while (i > 0 && event.before(heap_[(i - 1) / 4])) {
      heap_[i] = heap_[(i - 1) / 4];
      i = (i - 1) / 4;
    }
    heap_[i] = event;
  }

  Event pop_heap() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    const std::size_t n = heap_.size();
    std::size_t i = 0;
    for (std::size_t child = 1; child < n; child = 4 * i + 1) {
      std::size_t least = child;
      for (std::size_t c = child + 1; c < child + 4 && c < n; ++c) {
        if (heap_[c].before(heap_[least])) least = c;
      }
      if (!heap_[least].before(last)) break;
      heap_[i] = heap_[least];
      i = least;
    }
    if (n > 0) heap_[i] = last;
    return first;
  }

  std::vector<Event> line_;  // ascending from first_ on
  std::size_t first_ = 0;
  std::vector<Event> heap_;
  std::uint64_t numbers_ = 0;
};

}  // namespace motley
