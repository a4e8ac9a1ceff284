#include "comm/algorithm/run_through.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>

#include "comm/algorithm/traffic.h"

namespace motley {
namespace {

constexpr int kWindow = kPricedWindow;
constexpr int kLanes = kPricedLanes;
constexpr std::uint64_t kMessages = std::uint64_t{1} << 63;  // in the numbers of their events

class Simulation {
 public:
  Simulation(const std::vector<Schedule>& schedules, const Prices& prices, int pieces)
      : prices_(prices),
        schedules_(schedules),
        pieces_(pieces),
        lanes_(std::min(pieces, kLanes)),
        traffic_(prices.topology()),
        ranks_(schedules_.size()) {}

  // The time at which the last rank finishes.
  Duration run() {
    for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
      for (int lane = 0; lane < lanes_; ++lane) {
        at(r, lane).piece = rank(r).started++;
        advance(r, lane);
      }
    }
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
  struct Lane {
    int piece = -1;
    int head = 0;  // oldest unfinished step
    int next = 0;  // steps [head, next) have started
    std::array<Pending, kWindow> window;
    Pending& pending(int step) { return window[static_cast<std::size_t>(step % kWindow)]; }
  };
  struct Rank {
    int started = 0;  // pieces
    std::array<Lane, kLanes> lanes;
  };
  struct Event {
    Duration time{};
    std::uint64_t number = 0;  // breaks ties: what is done before what comes
    enum Kind : std::uint8_t { kTail, kArrival, kWorked } kind = kTail;
    int from = 0;
    int to = 0;  // of a message; the rank that works
    int piece = 0;
    int step = 0;
    double bytes = 0;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Rank& rank(int r) { return ranks_[static_cast<std::size_t>(r)]; }
  Lane& at(int r, int lane) { return rank(r).lanes[static_cast<std::size_t>(lane)]; }
  const Schedule& schedule(int r) const { return schedules_[static_cast<std::size_t>(r)]; }
  // Messages of a piece from one rank that have arrived at another and are not taken.
  int& arrived(int from, int to, int piece) {
    const std::size_t pair =
        static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to);
    return arrived_[pair * static_cast<std::size_t>(pieces_) + static_cast<std::size_t>(piece)];
  }
  // The lane that runs a piece, or -1 if it has not begun.
  int lane_of(int r, int piece) {
    for (int lane = 0; lane < lanes_; ++lane) {
      if (at(r, lane).piece == piece) return lane;
    }
    return -1;
  }

  void happen(Event event) {
    if (event.kind == Event::kTail) {  // its turn at the receiver's port
      event.time = traffic_.turn(event.from, event.to, now_);
      if (event.time > now_) return events_.push(event);
      event.kind = Event::kArrival;
      event.time = traffic_.take_in(event.from, event.to, event.bytes, now_);
      if (event.time > now_) return events_.push(event);
    }
    const int lane = lane_of(event.to, event.piece);
    if (event.kind == Event::kWorked) {
      at(event.to, lane).pending(event.step).done = true;
      return advance(event.to, lane);
    }
    const int before = waiting(event.from, event.to, event.piece);
    ++arrived(event.from, event.to, event.piece);
    if (lane >= 0) advance(event.to, lane);
    if (waiting(event.from, event.to, event.piece) <= before) return;
    traffic_.work(event.to, prices_.keeping(event.from, event.to, event.bytes), now_);
  }

  // Messages of a piece from one rank that have come to another before their turn.
  int waiting(int from, int to, int piece) {
    int count = arrived(from, to, piece);
    const int lane = lane_of(to, piece);
    if (lane < 0) return count;
    Lane& here = at(to, lane);
    for (int step = here.head; step < here.next; ++step) {
      const Pending& what = here.pending(step);
      const bool idle = what.arrived && !what.working && !what.done;
      count += idle && what.step.is_receive() && what.step.peer == from ? 1 : 0;
    }
    return count;
  }

  // Does all that a lane of rank r can do now.
  void advance(int r, int lane) {
    Lane& here = at(r, lane);
    while (here.piece >= 0) {
      for (bool moved = true; moved;) {
        moved = false;
        for (int step = here.head; step < here.next; ++step) moved |= take(r, here, step);
        while (here.head < here.next && here.pending(here.head).done) ++here.head;
        moved |= start_next(r, here);
      }
      if (here.head < schedule(r).steps) return;
      here.piece = rank(r).started < pieces_ ? rank(r).started++ : -1;
      here.head = here.next = 0;
    }
  }

  // A receive's message, a copy or a reduction takes effect, if it may.
  bool take(int r, Lane& here, int step) {
    Pending& what = here.pending(step);
    if (what.done || what.working || what.step.kind == Step::kSend) return false;
    if (!what.arrived) {
      if (!is_next_from_peer(here, step)) return false;
      int& waiting = arrived(what.step.peer, r, here.piece);
      if (waiting == 0) return false;
      --waiting;
      what.arrived = true;
    }
    if (blocked(here, what.step, step)) return false;
    const Duration work = prices_.work(schedule(r), what.step);
    if (work > Duration::zero()) {
      what.working = true;
      events_.push(
          {traffic_.work(r, work, now_), numbers_++, Event::kWorked, r, r, here.piece, step, 0});
      return false;
    }
    return what.done = true;
  }

  // No earlier receive from the same rank still waits for its message.
  static bool is_next_from_peer(Lane& here, int step) {
    for (int i = here.head; i < step; ++i) {
      const Pending& earlier = here.pending(i);
      if (earlier.step.is_receive() && earlier.step.peer == here.pending(step).step.peer &&
          !earlier.arrived)
        return false;
    }
    return true;
  }

  bool start_next(int r, Lane& here) {
    if (here.next == schedule(r).steps || here.next - here.head == kWindow) return false;
    const Step step = schedule(r).at(here.next);
    const bool send = step.kind == Step::kSend;
    if (send && blocked(here, step, here.next)) return false;
    here.pending(here.next) = {.step = step, .arrived = step.is_local(), .done = send};
    ++here.next;
    if (send) {
      const double bytes = prices_.bytes_of(schedule(r), step);
      events_.push({traffic_.send(r, step.peer, bytes, now_), kMessages | numbers_++, Event::kTail,
                    r, step.peer, here.piece, 0, bytes});
    }
    return true;
  }

  static bool blocked(Lane& here, const Step& step, int index) {
    for (int i = here.head; i < index; ++i) {
      const Pending& earlier = here.pending(i);
      if (!earlier.done && conflict(earlier.step, step)) return true;
    }
    return false;
  }

  const Prices& prices_;
  const std::vector<Schedule>& schedules_;
  int pieces_;
  int lanes_;
  Traffic traffic_;
  std::vector<Rank> ranks_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<std::size_t, int> arrived_;  // by from, to and piece
  std::uint64_t numbers_ = 0;
  Duration now_{};
};

}  // namespace

Duration run_through(const std::vector<Schedule>& schedules, const Prices& prices, int pieces) {
  return Simulation(schedules, prices, pieces).run();
}

}  // namespace motley
