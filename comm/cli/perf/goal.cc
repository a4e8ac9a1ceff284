#include "comm/cli/perf/goal.h"

#include <algorithm>

namespace motley::perf {
namespace {

using Against = Goal::Against;

constexpr std::size_t kKi = 1 << 10;
constexpr std::size_t kMi = 1 << 20;
constexpr std::size_t kAny = std::size_t{1} << 62;

bool speaks_of(const Goal& goal, const Point& point) {
  return (goal.ranks == 0 || goal.ranks == point.ranks) && goal.from <= point.bytes &&
         point.bytes <= goal.to &&
         std::find(goal.kinds.begin(), goal.kinds.end(), point.kind) != goal.kinds.end() &&
         std::find(goal.places.begin(), goal.places.end(), point.place) != goal.places.end();
}

// The number that at_most is compared with; nothing if the other side was not measured.
std::optional<double> value(const Goal& goal, const Comparison& comparison, const Point& point) {
  const std::size_t ours = comparison.ours(goal.buffers);
  if (goal.against == Against::kMicroseconds) {
    const auto time = comparison.time(point, ours);
    return time ? std::optional(*time * 1e6) : std::nullopt;
  }
  if (goal.against == Against::kLimit) {
    const auto share = comparison.share(point);
    return share && share->value ? std::optional(1 / *share->value) : std::nullopt;
  }
  const auto among = goal.against == Against::kBest          ? Comparison::Peers::kAll
                     : goal.against == Against::kDefaultHeap ? Comparison::Peers::kDefaultHeap
                                                             : Comparison::Peers::kKeptHeap;
  const auto best = comparison.best(point, among);
  if (!best) return std::nullopt;
  const auto ratio = comparison.ratio(point, ours, *best);
  return ratio ? std::optional(ratio->value) : std::nullopt;
}

void note(std::vector<std::string>& names, const std::vector<std::string>& more) {
  for (const std::string& name : more) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
}

std::vector<Goal> everywhere() {
  const std::vector<CallKind> both = {CallKind::kAllReduce, CallKind::kAllToAll};
  return {{.what = "no slower than the best peer (5 % for noise), private buffers",
           .kinds = both,
           .to = kAny,
           .at_most = 1.05},
          {.what = "no slower than the best peer (5 % for noise), allocated buffers",
           .kinds = both,
           .to = kAny,
           .buffers = Buffers::kAllocated,
           .at_most = 1.05},
          {.what = "all_to_all against the best peer, allocated buffers",
           .kinds = {CallKind::kAllToAll},
           .to = kAny,
           .buffers = Buffers::kAllocated,
           .at_most = 0.7},
          {.what = "16M and more against the memory limit, allocated buffers (1/0.7)",
           .kinds = both,
           .from = 16 * kMi,
           .to = kAny,
           .buffers = Buffers::kAllocated,
           .against = Against::kLimit,
           .at_most = 1 / 0.7}};
}

std::vector<Goal> on_few_ranks() {
  const Goal middle{.what = "all_reduce of 64K to 16M in place on 2 ranks against the best peer",
                    .ranks = 2,
                    .places = {Place::kIn},
                    .from = 64 * kKi,
                    .to = 16 * kMi};
  Goal middle_private = middle;
  middle_private.at_most = 0.55;
  Goal middle_allocated = middle;
  middle_allocated.what = "the same with allocated buffers";
  middle_allocated.buffers = Buffers::kAllocated;
  middle_allocated.at_most = 0.35;
  return {{.what = "all_reduce of 4 B on 2 ranks against the best peer",
           .ranks = 2,
           .to = 4,
           .at_most = 0.65},
          middle_private,
          middle_allocated,
          {.what = "all_reduce of 64M on 2 ranks against the best peer with its heap kept",
           .ranks = 2,
           .from = 64 * kMi,
           .to = 64 * kMi,
           .against = Against::kKeptHeap,
           .at_most = 0.5},
          {.what = "all_reduce of 64M on 2 ranks against the best peer as users get it",
           .ranks = 2,
           .from = 64 * kMi,
           .to = 64 * kMi,
           .against = Against::kDefaultHeap,
           .at_most = 0.05},
          {.what = "all_reduce of 4 B on 8 ranks, microseconds",
           .ranks = 8,
           .to = 4,
           .against = Against::kMicroseconds,
           .at_most = 40}};
}

}  // namespace

const std::vector<Goal>& goals() {
  static const std::vector<Goal> all = [] {
    std::vector<Goal> result = everywhere();
    const std::vector<Goal> special = on_few_ranks();
    result.insert(result.end(), special.begin(), special.end());
    return result;
  }();
  return all;
}

Verdict judge(const Goal& goal, const Comparison& comparison) {
  Verdict verdict;
  for (const Point& point : comparison.points()) {
    const bool measured = comparison.ran(point, comparison.ours(goal.buffers));
    if (!measured || !speaks_of(goal, point)) continue;
    ++verdict.points;
    const bool against_peers =
        goal.against != Against::kLimit && goal.against != Against::kMicroseconds;
    const auto open = against_peers ? comparison.not_run(point) : std::vector<std::string>();
    note(verdict.open, open);
    const auto found = value(goal, comparison, point);
    verdict.unknown += !found;
    if (!found) continue;
    verdict.met += *found <= goal.at_most && open.empty();
    if (*found < verdict.worst) continue;
    verdict.worst = *found;
    verdict.worst_point = point;
  }
  return verdict;
}

}  // namespace motley::perf
