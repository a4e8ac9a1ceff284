#include "comm/algorithm/cost.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
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

// What messages and reductions of a rank cost.
class Prices {
 public:
  // `schedule`: any rank's.
  Prices(const Workload& work, const Schedule& schedule, const Topology& topology)
      : topology_(topology), weights_(schedule.weights) {
    const bool shares = place_of(work.kind, {}, 0).where == Place::kShare;
    const bool one = work.kind == CallKind::kSendRecv;
    const int parts = shares ? schedule.first_scratch() : one ? 1 : topology.ranks();
    const auto weight = [](double sum, std::uint32_t w) { return sum + w; };
    const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0, weight);
    unit_bytes_ = static_cast<double>(work.bytes) / (weights_.empty() ? parts : all);
  }

  Duration latency(int rank, const Step& step) const {
    return topology_.link(rank, step.peer).latency;
  }
  // How long a message occupies a port.
  Duration transfer(int rank, const Schedule& schedule, const Step& step) const {
    return time_of(bytes_of(schedule, step), topology_.link(rank, step.peer).bytes_per_second);
  }
  // How long a rank works on a step itself.
  Duration work(const Schedule& schedule, const Step& step) const {
    if (step.kind == Step::kSend || step.kind == Step::kRecv) return {};
    return time_of(bytes_of(schedule, step), topology_.costs().reduce_bytes_per_second);
  }

 private:
  double bytes_of(const Schedule& schedule, const Step& step) const {
    if (weights_.empty()) return unit_bytes_ * step.chunk_count;
    double weight = 0;
    for (int i = 0; i < step.chunk_count; ++i)
      weight += weights_[static_cast<std::size_t>(schedule.sized_as(step.first_chunk + i))];
    return unit_bytes_ * weight;
  }

  const Topology& topology_;
  std::vector<std::uint32_t> weights_;
  double unit_bytes_ = 0;  // of a chunk; where there are weights, of one unit of weight
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
    bool working = false;
    bool done = false;
  };
  struct Rank {
    int head = 0;  // oldest unfinished step
    int next = 0;  // steps [head, next) have started
    std::array<Pending, kWindow> window;
    Duration out_free{};
    Duration in_free{};
    Duration worked{};  // the end of the last reduction or copy
  };
  struct Event {
    Duration time{};
    std::uint64_t number = 0;  // breaks ties
    enum Kind : std::uint8_t { kTail, kArrival, kWorked } kind = kTail;
    int from = 0;
    int to = 0;  // of a message; the rank that works
    int step = 0;
    Duration transfer{};
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  const Schedule& schedule(int r) const { return schedules_[static_cast<std::size_t>(r)]; }
  Pending& pending(int r, int step) {
    return rank(r).window[static_cast<std::size_t>(step % kWindow)];
  }
  // Messages from one rank that have arrived at another and are not taken.
  int& arrived(int from, int to) {
    return arrived_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }

  void happen(Event event) {
    if (event.kind == Event::kWorked) {
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

  // A receive's message, a copy or a reduction takes effect, if it may.
  bool take(int r, int step) {
    Pending& what = pending(r, step);
    if (what.done || what.working || what.step.kind == Step::kSend) return false;
    if (!what.arrived) {
      if (!is_next_from_peer(r, step) || arrived(what.step.peer, r) == 0) return false;
      --arrived(what.step.peer, r);
      what.arrived = true;
    }
    if (blocked(r, what.step, step)) return false;
    const Duration work = prices_.work(schedule(r), what.step);
    if (work > Duration::zero()) {
      rank(r).worked = std::max(now_, rank(r).worked) + work;
      what.working = true;
      events_.push({rank(r).worked, numbers_++, Event::kWorked, r, r, step, {}});
      return false;
    }
    return what.done = true;
  }

  // No earlier receive from the same rank still waits for its message.
  bool is_next_from_peer(int r, int step) {
    for (int i = rank(r).head; i < step; ++i) {
      const Pending& earlier = pending(r, i);
      if (earlier.step.is_receive() && earlier.step.peer == pending(r, step).step.peer &&
          !earlier.arrived)
        return false;
    }
    return true;
  }

  bool start_next(int r) {
    Rank& at = rank(r);
    if (at.next == schedule(r).steps || at.next - at.head == kWindow) return false;
    const Step step = schedule(r).at(at.next);
    const bool send = step.kind == Step::kSend;
    if (send && blocked(r, step, at.next)) return false;
    pending(r, at.next) = {.step = step, .arrived = step.is_local(), .done = send};
    ++at.next;
    if (send) {
      const Duration transfer = prices_.transfer(r, schedule(r), step);
      at.out_free = std::max(now_, at.out_free) + transfer;
      events_.push({at.out_free + prices_.latency(r, step), numbers_++, Event::kTail, r, step.peer,
                    0, transfer});
    }
    return true;
  }

  bool blocked(int r, const Step& step, int index) {
    for (int i = rank(r).head; i < index; ++i) {
      const Pending& earlier = pending(r, i);
      if (!earlier.done && conflict(earlier.step, step)) return true;
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
      const Duration end = step.kind == Step::kSend ? send(step) : take(step);
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
      if (conflict(past.step, step)) started_ = std::max(started_, past.end);
    }
    out_free_ = std::max(out_free_, started_) + prices_.transfer(rank_, schedule_, step);
    return started_;
  }

  Duration take(const Step& step) {
    Duration end = started_;
    if (step.is_receive()) {
      in_free_ = std::max(out_free_ + prices_.latency(rank_, step),
                          in_free_ + prices_.transfer(rank_, schedule_, step));
      end = std::max(end, in_free_);
    }
    for (const Past& past : past_) {
      if (conflict(past.step, step)) end = std::max(end, past.end);
    }
    const Duration work = prices_.work(schedule_, step);
    if (work == Duration::zero()) return end;
    return worked_ = std::max(end, worked_) + work;
  }

  Schedule schedule_;
  int rank_;
  const Prices& prices_;
  Duration started_{};   // of the step before
  Duration finished_{};  // of all steps so far
  Duration out_free_{};
  Duration in_free_{};
  Duration worked_{};
  std::array<Past, kWindow> past_{};
};

}  // namespace

Duration cost(const Algorithm& family, const Workload& work, const Topology& topology) {
  const int size = topology.ranks();
  const auto schedule_of = [&](int rank) {
    return family.make({.rank = rank, .size = size, .root = work.root, .topology = &topology});
  };
  const Prices prices(work, schedule_of(0), topology);
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
