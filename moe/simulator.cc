#include "moe/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "comm/error.h"
#include "moe/program/progress.h"

namespace motley::moe {
namespace {

class Simulation {
 public:
  Simulation(std::span<const Program> programs, const CostModel& costs)
      : programs_(programs), costs_(costs) {
    for (int rank = 0; rank < std::ssize(programs); ++rank) {
      ranks_.emplace_back(programs[static_cast<std::size_t>(rank)]);
      timelines_.push_back({.simulated = true, .rank = rank, .ops = {}});
      timelines_.back().ops.resize(programs[static_cast<std::size_t>(rank)].ops.size());
    }
  }

  std::vector<Timeline> run() {
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) start_what_can(rank, Duration{});
    while (!ends_.empty()) {
      // All that ends now does so before anything starts: what it makes ready may come first.
      const Duration now = std::get<0>(*ends_.begin());
      std::set<int> changed;
      while (!ends_.empty() && std::get<0>(*ends_.begin()) == now) {
        const auto [time, rank, op] = *ends_.begin();
        ends_.erase(ends_.begin());
        Rank& it = ranks_[static_cast<std::size_t>(rank)];
        it.busy[static_cast<std::size_t>(at(rank, op).lane)] = false;
        it.progress.end(op);
        changed.insert(rank);
      }
      for (const int rank : changed) start_what_can(rank, now);
    }
    return std::move(timelines_);
  }

 private:
  struct Rank {
    explicit Rank(const Program& program) : progress(program) {}
    Progress progress;
    std::array<bool, kLanes> busy{};
  };

  const Op& at(int rank, int op) const {
    return programs_[static_cast<std::size_t>(rank)].ops[static_cast<std::size_t>(op)];
  }
  OpTime& time_of(int rank, int op) {
    return timelines_[static_cast<std::size_t>(rank)].ops[static_cast<std::size_t>(op)];
  }

  void start_what_can(int rank, Duration now) {
    Rank& it = ranks_[static_cast<std::size_t>(rank)];
    for (int lane = 0; lane < kLanes; ++lane) {
      if (it.busy[static_cast<std::size_t>(lane)]) continue;
      const auto op = it.progress.take(static_cast<Lane>(lane));
      if (!op) continue;
      it.busy[static_cast<std::size_t>(lane)] = true;
      time_of(rank, *op).start = now;
      if (is_collective(at(rank, *op).kind) && ranks_.size() > 1) {
        join(*op, now);
      } else {
        end_at(rank, *op, now + costs_.time(at(rank, *op)));
      }
    }
  }

  // One more rank has begun a collective; the last decides when it ends.
  void join(int op, Duration now) {
    if (++joined_[op] < ranks_.size()) return;
    std::vector<const Op*> ops;
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) ops.push_back(&at(rank, op));
    const Duration end = now + costs_.time(ops);
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) end_at(rank, op, end);
  }

  void end_at(int rank, int op, Duration time) {
    time_of(rank, op).end = time;
    ends_.insert({time, rank, op});
  }

  std::span<const Program> programs_;
  const CostModel& costs_;
  std::vector<Rank> ranks_;
  std::vector<Timeline> timelines_;
  std::set<std::tuple<Duration, int, int>> ends_;  // time, rank, operation
  std::map<int, std::size_t> joined_;              // ranks that have begun a collective
};

}  // namespace

std::vector<Timeline> simulate(std::span<const Program> programs, const CostModel& costs) {
  const int ranks = costs.topology().ranks();
  if (programs.size() != 1 && std::ssize(programs) != ranks) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe simulator: {} programs for {} ranks. Pass one for each rank, or "
                            "one for all.",
                            programs.size(), ranks));
  }
  check_alike(programs);
  return Simulation(programs, costs).run();
}

Timeline simulate(const Program& program, const CostModel& costs) {
  return std::move(simulate(std::span(&program, 1), costs).front());
}

Duration makespan(std::span<const Timeline> timelines) {
  Duration last{};
  for (const Timeline& timeline : timelines) last = std::max(last, timeline.total());
  return last;
}

Duration least_time(const Program& program, const CostModel& costs) {
  std::vector<Duration> way(program.ops.size());
  std::array<Duration, kLanes> busy{};
  Duration least{};
  for (const int op : serial_order(program)) {
    const Op& it = program.ops[static_cast<std::size_t>(op)];
    Duration start{};
    for (const int before : it.after)
      start = std::max(start, way[static_cast<std::size_t>(before)]);
    const Duration time = costs.time(it);
    way[static_cast<std::size_t>(op)] = start + time;
    busy[static_cast<std::size_t>(it.lane)] += time;
    least = std::max(least, start + time);
  }
  return std::max(least, *std::ranges::max_element(busy));
}

}  // namespace motley::moe
