#include "comm/algorithm/cost.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace motley {
namespace {

constexpr int kWindow = 8;  // the executor's

Duration time_of(double bytes, double bytes_per_second) {
  return Duration(static_cast<Duration::rep>(bytes / bytes_per_second * 1e9));
}

bool overlap(const Step& a, const Step& b) {
  return std::max(a.first_chunk, b.first_chunk) <
         std::min(a.first_chunk + a.chunk_count, b.first_chunk + b.chunk_count);
}

// What messages and reductions of a rank cost.
class Prices {
 public:
  Prices(int chunks, std::size_t bytes, const Topology& topology)
      : chunk_bytes_(static_cast<double>(bytes) / chunks), topology_(topology) {}

  Duration latency(int rank, const Step& step) const {
    return topology_.link(rank, step.peer).latency;
  }
  // How long a message occupies a port.
  Duration transfer(int rank, const Step& step) const {
    return time_of(bytes_of(step), topology_.link(rank, step.peer).bytes_per_second);
  }
  Duration reduction(const Step& step) const {
    return time_of(bytes_of(step), topology_.costs().reduce_bytes_per_second);
  }

 private:
  double bytes_of(const Step& step) const { return chunk_bytes_ * step.chunk_count; }

  double chunk_bytes_;
  const Topology& topology_;
};

// All ranks, event by event.
class Simulation {
 public:
  Simulation(std::vector<Schedule> schedules, const Prices& prices)
      : prices_(prices), schedules_(std::move(schedules)), ranks_(schedules_.size()) {}

  // The time at which the last rank finishes.
  Duration run() {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) advance(r);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.time;
      happen(event);
    }
    return now_;
  }

 private:
  struct Pending {
    Step step;
    bool arrived = false;  // the message of a receive
    bool reducing = false;
    bool done = false;
  };
  struct Rank {
    int head = 0;  // oldest unfinished step
    int next = 0;  // steps [head, next) have started
    std::array<Pending, kWindow> window;
    Duration out_free{};
    Duration in_free{};
    Duration reduced{};  // the end of the last reduction
  };
  struct Event {
    Duration time{};
    std::uint64_t number = 0;  // breaks ties
    enum Kind : std::uint8_t { kTail, kArrival, kReduced } kind = kTail;
    int from = 0;
    int to = 0;  // of a message; the rank that reduces
    int step = 0;
    Duration transfer{};
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Pending& pending(int r, int step) {
    return rank(r).window[static_cast<std::size_t>(step % kWindow)];
  }
  // Messages from one rank that have arrived at another and are not taken.
  int& arrived(int from, int to) {
    return arrived_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }

  void happen(Event event) {
    if (event.kind == Event::kReduced) {
      pending(event.to, event.step).done = true;
    } else {
      if (event.kind == Event::kTail) {  // its turn at the receiver's port
        Duration& in_free = rank(event.to).in_free;
        in_free = std::max(now_, in_free + event.transfer);
        event.kind = Event::kArrival;
        event.time = in_free;
        if (event.time > now_) return events_.push(event);
      }
      ++arrived(event.from, event.to);
    }
    advance(event.to);
  }

  // Does all that rank r can do now.
  void advance(int r) {
    Rank& at = rank(r);
    for (bool moved = true; moved;) {
      moved = false;
      for (int step = at.head; step < at.next; ++step) moved |= take(r, step);
      while (at.head < at.next && pending(r, at.head).done) ++at.head;
      moved |= start_next(r);
    }
  }

  // A receive's message takes effect, if it may.
  bool take(int r, int step) {
    Pending& receive = pending(r, step);
    if (receive.done || receive.reducing || receive.step.kind == Step::kSend) return false;
    if (!receive.arrived) {
      if (!is_next_from_peer(r, step) || arrived(receive.step.peer, r) == 0) return false;
      --arrived(receive.step.peer, r);
      receive.arrived = true;
    }
    if (blocked(r, receive.step, step)) return false;
    if (receive.step.kind == Step::kRecvReduce) {
      rank(r).reduced = std::max(now_, rank(r).reduced) + prices_.reduction(receive.step);
      if (rank(r).reduced > now_) {
        receive.reducing = true;
        events_.push({rank(r).reduced, numbers_++, Event::kReduced, r, r, step, {}});
        return false;
      }
    }
    return receive.done = true;
  }

  // No earlier receive from the same rank still waits for its message.
  bool is_next_from_peer(int r, int step) {
    for (int i = rank(r).head; i < step; ++i) {
      const Pending& earlier = pending(r, i);
      const bool receive = earlier.step.kind != Step::kSend;
      if (receive && earlier.step.peer == pending(r, step).step.peer && !earlier.arrived)
        return false;
    }
    return true;
  }

  bool start_next(int r) {
    Rank& at = rank(r);
    const Schedule& schedule = schedules_[static_cast<std::size_t>(r)];
    if (at.next == schedule.steps || at.next - at.head == kWindow) return false;
    const Step step = schedule.at(at.next);
    const bool send = step.kind == Step::kSend;
    if (send && blocked(r, step, at.next)) return false;
    pending(r, at.next) = {.step = step, .done = send};
    ++at.next;
    if (send) {
      const Duration transfer = prices_.transfer(r, step);
      at.out_free = std::max(now_, at.out_free) + transfer;
      events_.push({at.out_free + prices_.latency(r, step), numbers_++, Event::kTail, r, step.peer,
                    0, transfer});
    }
    return true;
  }

  bool blocked(int r, const Step& step, int index) {
    for (int i = rank(r).head; i < index; ++i) {
      const Pending& earlier = pending(r, i);
      if (!earlier.done && overlap(earlier.step, step)) return true;
    }
    return false;
  }

  const Prices& prices_;
  std::vector<Schedule> schedules_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<std::size_t, int> arrived_;  // by from * ranks + to
  std::uint64_t numbers_ = 0;
  Duration now_{};
};

// One rank alone, as if the others did the same at the same time: what is received left its sender
// when the last message sent before it left here.
class Walk {
 public:
  Walk(Schedule schedule, int rank, const Prices& prices)
      : schedule_(std::move(schedule)), rank_(rank), prices_(prices) {}

  Duration run() {
    for (int i = 0; i < schedule_.steps; ++i) {
      const Step step = schedule_.at(i);
      Past& slot = past_[static_cast<std::size_t>(i % kWindow)];
      started_ = std::max(started_, slot.all_ended);  // of the step that is a window earlier
      const Duration end = step.kind == Step::kSend ? send(step) : receive(step);
      finished_ = std::max(finished_, end);
      slot = {step, end, finished_};
    }
    return finished_;
  }

 private:
  struct Past {
    Step step;
    Duration end{};
    Duration all_ended{};  // the end of the last of all steps up to this one
  };

  Duration send(const Step& step) {
    for (const Past& past : past_) {
      if (past.step.kind != Step::kSend && overlap(past.step, step))
        started_ = std::max(started_, past.end);
    }
    out_free_ = std::max(out_free_, started_) + prices_.transfer(rank_, step);
    return started_;
  }

  Duration receive(const Step& step) {
    in_free_ = std::max(out_free_ + prices_.latency(rank_, step),
                        in_free_ + prices_.transfer(rank_, step));
    Duration end = std::max(started_, in_free_);
    for (const Past& past : past_) {
      if (overlap(past.step, step)) end = std::max(end, past.end);
    }
    if (step.kind == Step::kRecv) return end;
    return reduced_ = std::max(end, reduced_) + prices_.reduction(step);
  }

  Schedule schedule_;
  int rank_;
  const Prices& prices_;
  Duration started_{};   // of the step before
  Duration finished_{};  // of all steps so far
  Duration out_free_{};
  Duration in_free_{};
  Duration reduced_{};
  std::array<Past, kWindow> past_{};
};

}  // namespace

Duration cost(const Algorithm& family, std::size_t bytes, const Topology& topology, int root) {
  const int size = topology.ranks();
  const auto schedule_of = [&](int rank) { return family.make(rank, size, root); };
  const Prices prices(schedule_of(0).chunks, bytes, topology);
  std::int64_t steps = 0;
  for (int rank = 0; rank < size && steps <= kExactSteps; ++rank) steps += schedule_of(rank).steps;
  if (steps <= kExactSteps) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < size; ++rank) schedules.push_back(schedule_of(rank));
    return Simulation(std::move(schedules), prices).run();
  }
  int border = 0;  // a rank whose neighbour is on another host
  while (border < size - 2 && topology.same_host(border, border + 1)) ++border;
  Duration longest{};
  for (const int rank : {0, 1, border, border + 1, size - 1}) {
    longest = std::max(longest, Walk(schedule_of(rank), rank, prices).run());
  }
  return longest;
}

}  // namespace motley
