// What Motley is asked to reach against its peers, as data, and whether a comparison shows it.
#pragma once

#include <string>
#include <vector>

#include "comm/cli/perf/comparison.h"

namespace motley::perf {

struct Goal {
  enum class Against {
    kBest,         // of all peers
    kDefaultHeap,  // the best of the peers as users get them
    kKeptHeap,     // the best of the peers that are spared their page faults
    kLimit,        // the machine's memory
    kMicroseconds,
  };
  const char* what = "";
  int ranks = 0;  // 0: any
  std::vector<CallKind> kinds = {CallKind::kAllReduce};
  std::vector<Place> places = {Place::kOut, Place::kIn};
  std::size_t from = 0;  // bytes
  std::size_t to = 0;
  Buffers buffers = Buffers::kPrivate;
  Against against = Against::kBest;
  double at_most = 1;  // our time over the other's, or microseconds
};

const std::vector<Goal>& goals();

struct Verdict {
  int points = 0;   // that the goal speaks of and that were measured on our side
  int met = 0;      // of these
  int unknown = 0;  // of these: nothing to compare with, or only what was held up or is noise
  double worst = 0;
  Point worst_point;              // where the value is greatest
  std::vector<std::string> open;  // peers that were not run at some point, so that it is not met
};

Verdict judge(const Goal& goal, const Comparison& comparison);

}  // namespace motley::perf
