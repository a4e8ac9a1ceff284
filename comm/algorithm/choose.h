// comm/algorithm/choose.h: the cheapest schedule family for a call.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/topology.h"

namespace motley {

struct Choice {
  CallKind kind = CallKind::kAllReduce;
  std::size_t bytes = 0;  // per rank
  int root = 0;
  std::size_t segment_bytes = 128 << 10;  // Options::segment_bytes
};

// Index in algorithms_of(kind) of the family that costs least among topology.ranks() ranks; the
// first of those that cost the same. Ranks that pass the same get the same answer, on any machine:
// times are whole nanoseconds, and no sum of floating-point numbers is involved.
//   cost  that of cost() for each family, some milliseconds at 64 ranks: remember the answer
int choose(const Choice& call, const Topology& topology);

struct Price {
  int index = 0;  // in algorithms_of(kind)
  const char* family = "";
  Duration time{};
};

// What the families that suit the topology (Algorithm::suits) cost for the call, in the order of
// algorithms_of(kind).
std::vector<Price> prices(const Choice& call, const Topology& topology);
// A table for people: the chosen family first, then the others from the cheapest to the dearest.
std::string explain(const Choice& call, const Topology& topology);

}  // namespace motley
