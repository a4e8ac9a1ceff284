// What collectives of a team cost, by the speeds of the topology: who does how much, and how often
// all wait for each other.
#include <algorithm>
#include <cmath>

#include "comm/transport/shm_team.h"

namespace motley {
namespace {

// A call of a team costs a fraction of what starting a schedule does; and a look at a line that
// another has written, of what a message does.
constexpr int kLooksPerMessage = 4;

struct Work {          // in seconds
  double busiest = 0;  // of the rank that has most to do
  double all = 0;      // of all ranks together
};

// `copy`, `reduce`: seconds for all bytes of the larger buffer. As in schedules, what a rank has
// for itself is where it belongs from the beginning, but in all_to_all.
Work work_of(CallKind kind, double ranks, double copy, double reduce) {
  const double others = (ranks - 1) / ranks;  // of a buffer: the blocks that are not one's own
  const auto each = [ranks](double work) { return Work{work, ranks * work}; };
  switch (kind) {
    case CallKind::kAllReduce:
      return each(others * (2 * copy + reduce));
    case CallKind::kReduceScatter:
      return each(others * (copy + reduce));
    case CallKind::kReduce:
      return {others * (2 * copy + reduce), ranks * others * (copy + reduce) + 2 * copy};
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return each(copy);
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return each(2 * others * copy + copy / ranks);
    case CallKind::kBroadcast:
      return {copy, ranks * copy};
    case CallKind::kGather:
    case CallKind::kScatter:
      return {others * copy, 2 * others * copy};
    case CallKind::kSendRecv:
    case CallKind::kBarrier:
      break;
  }
  return {};
}

// Everybody reads what everybody shows, and writes but once.
Work work_at_once(CallKind kind, double ranks, double copy, double reduce) {
  const double read = (ranks - 1) * copy;
  if (kind == CallKind::kAllReduce) return {read, ranks * read};
  if (kind == CallKind::kReduce) return {read, read};
  if (kind == CallKind::kReduceScatter) return {copy, ranks * copy};
  return work_of(kind, ranks, copy, reduce);
}

}  // namespace

Duration ShmTeam::price(CallKind kind, std::size_t bytes, const Topology& among) const {
  const TopologyCosts& costs = among.costs();
  const int ranks = among.ranks();
  const int cores = among.hosts()[0].cores > 0 ? std::min(among.hosts()[0].cores, ranks) : ranks;
  Duration hop{};
  for (int other = 1; other < ranks; ++other)
    hop = std::max(hop, among.link(0, other).latency + among.link(0, other).per_message);
  const auto way = way_of(kind, bytes, ranks);
  const int meetings = way == ShmRun::Way::kAtOnce ? 1 : way == ShmRun::Way::kReduce ? 3 : 2;
  const double copy = static_cast<double>(bytes) / costs.copy_bytes_per_second;
  const double reduce = static_cast<double>(bytes) / costs.reduce_bytes_per_second;
  const Work work = way == ShmRun::Way::kAtOnce ? work_at_once(kind, ranks, copy, reduce)
                                                : work_of(kind, ranks, copy, reduce);
  const double busy = std::max(work.busiest, work.all / cores);
  return (costs.per_call + meetings * hop) / kLooksPerMessage + Duration(std::llround(busy * 1e9));
}

}  // namespace motley
