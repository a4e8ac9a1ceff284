#include "comm/algorithm/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "comm/algorithm/prices.h"
#include "comm/algorithm/run_through.h"

namespace motley {
namespace {

constexpr int kWindow = kPricedWindow;
constexpr int kLanes = kPricedLanes;

// Of all pieces: of so many as are walked through and, where there are more, as long for each of
// the others as for the last of those.
Duration exact_cost(const std::vector<Schedule>& schedules, const Prices& prices,
                    std::int64_t steps) {
  const std::int64_t affordable =
      std::max<std::int64_t>(1, kExactSteps / std::max<std::int64_t>(1, steps));
  const auto most =
      static_cast<int>(std::min<std::int64_t>({prices.pieces(), affordable, 4 * kLanes}));
  const Duration time = run_through(schedules, prices, most);
  if (most == prices.pieces()) return time;
  const int fewer = most > kLanes ? most - kLanes : most / 2;
  const Duration less = fewer == 0 ? Duration{} : run_through(schedules, prices, fewer);
  return time + (time - less) * (prices.pieces() - most) / (most - fewer);
}

// How long the messages of a rank to other hosts take together, in ns.
double far_time(const Prices& prices, const Schedule& schedule, int rank) {
  double sum = 0;
  for (int i = 0; i < schedule.steps; ++i) {
    const Step step = schedule.at(i);
    if (step.kind == Step::kSend && !prices.topology().same_host(rank, step.peer))
      sum += static_cast<double>(prices.transfer(schedule, rank, step).count());
  }
  return sum;
}

int rank_elsewhere(const Topology& topology, int rank) {
  int other = 0;
  while (other + 1 < topology.ranks() && topology.same_host(rank, other)) ++other;
  return other;
}

// One rank alone, as if the others did the same at the same time: what is received left its sender
// when the last message sent before it left here.
class Walk {
 public:
  // `crowd`: how much longer messages to other hosts take as others of the host share its port.
  Walk(Schedule schedule, int rank, const Prices& prices, double crowd)
      : schedule_(std::move(schedule)), rank_(rank), prices_(prices), crowd_(crowd) {
    const Topology& topology = prices.topology();
    const Host& host = topology.hosts()[static_cast<std::size_t>(topology.host_of(rank))];
    has_port_ = host.ports > 0;
    if (host.cores > 0)
      near_crowd_ = std::max(1.0, static_cast<double>(host.ranks.size()) / host.cores);
  }

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
  struct Port {
    Duration out_free{};
    Duration in_free{};
  };

  bool is_far(const Step& step) const { return !prices_.topology().same_host(rank_, step.peer); }
  Port& port(const Step& step) { return ports_[has_port_ && is_far(step) ? 1 : 0]; }
  Duration transfer(const Step& step) const {
    const double alone = static_cast<double>(prices_.transfer(schedule_, rank_, step).count());
    return Duration(std::llround(alone * (is_far(step) ? crowd_ : near_crowd_)));
  }

  Duration send(const Step& step) {
    for (const Past& past : past_) {
      if (conflict(past.step, step)) started_ = std::max(started_, past.end);
    }
    port(step).out_free = std::max(port(step).out_free, started_) + transfer(step);
    return started_;
  }

  Duration take(const Step& step) {
    Duration end = started_;
    if (step.is_receive()) {
      Port& here = port(step);
      here.in_free = std::max(here.out_free + prices_.topology().link(rank_, step.peer).latency,
                              here.in_free + transfer(step));
      end = std::max(end, here.in_free);
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
  double crowd_;
  double near_crowd_ = 1;
  bool has_port_ = false;
  Duration started_{};           // of the step before
  Duration finished_{};          // of all steps so far
  std::array<Port, 2> ports_{};  // within the host; to others, where they are not the same
  Duration worked_{};
  std::array<Past, kWindow> past_{};
};

// All ranks walk through their first steps; each of the others counts as long as the last of those.
Duration early_cost(std::vector<Schedule> schedules, const Prices& prices) {
  const int all = schedules.front().steps;
  const auto affordable =
      static_cast<int>(4 * kExactSteps / static_cast<std::int64_t>(schedules.size()));
  const int later = std::min(all, std::max(64, affordable));
  const int early = later / 2;
  const auto until = [&](int steps) {
    for (Schedule& schedule : schedules) schedule.steps = steps;
    return run_through(schedules, prices, 1);
  };
  const Duration time = until(later);
  return time + (time - until(early)) * (all - later) / (later - early);
}

// A few ranks for all. Pieces are not told apart.
Duration rough_cost(const std::function<Schedule(int)>& schedule_of, Prices prices) {
  const Topology& topology = prices.topology();
  const int size = topology.ranks();
  prices.join_pieces();
  int border = 0;  // a rank whose neighbour is on another host
  while (border < size - 2 && topology.same_host(border, border + 1)) ++border;
  Duration longest{};
  Duration shortest = Duration::max();
  bool same_steps = true;
  for (const int rank : {0, 1, border, border + 1, size - 1}) {
    const double own = far_time(prices, schedule_of(rank), rank);
    double all = 0;  // of those that share its port
    const Host& host = topology.hosts()[static_cast<std::size_t>(topology.host_of(rank))];
    if (own > 0 && host.ports > 0) {
      const int far = rank_elsewhere(topology, rank);
      for (const int other : host.ranks) {
        if (topology.route(other, far).out == topology.route(rank, far).out)
          all += far_time(prices, schedule_of(other), other);
      }
    }
    const double crowd = own > 0 ? std::max(1.0, all / own) : 1.0;
    const Duration time = Walk(schedule_of(rank), rank, prices, crowd).run();
    longest = std::max(longest, time);
    shortest = std::min(shortest, time);
    same_steps = same_steps && schedule_of(rank).steps == schedule_of(0).steps;
  }
  if (!same_steps || longest - shortest < longest / 4) return longest;
  std::vector<Schedule> schedules;  // ranks that are near and far by turns hold each other up
  for (int rank = 0; rank < size; ++rank) schedules.push_back(schedule_of(rank));
  return early_cost(std::move(schedules), prices);
}

}  // namespace

Duration cost(const Algorithm& family, const Workload& work, const Topology& topology) {
  const int size = topology.ranks();
  if (size == 1) return {};
  const auto schedule_of = [&](int rank) {
    return family.make({.rank = rank, .size = size, .root = work.root, .topology = &topology});
  };
  const Prices prices(work, schedule_of(0), topology);
  std::vector<Schedule> schedules;
  std::int64_t steps = 0;
  for (int rank = 0; rank < size && steps <= kExactSteps; ++rank) {
    schedules.push_back(schedule_of(rank));
    steps += schedules.back().steps;
  }
  const Duration time =
      steps <= kExactSteps ? exact_cost(schedules, prices, steps) : rough_cost(schedule_of, prices);
  return topology.costs().per_call + time;
}

}  // namespace motley
