// comm/algorithm/choose.h: the cheapest schedule family for a call, or the transport's own way.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/topology.h"
#include "comm/view.h"

namespace motley {

// Where blocks vary nobody knows how long those of others are: all are priced as if they had so
// many bytes.
inline constexpr std::size_t kAssumedBlock = 256;

struct Choice {
  CallKind kind = CallKind::kAllReduce;
  std::size_t bytes = 0;  // per rank; of no matter where blocks vary
  int root = 0;
  std::size_t segment_bytes = 128 << 10;  // Options::segment_bytes
  Memory memory = Memory::kHost;          // of device memory no heads of blocks are passed on
  // What the call costs if the transport runs it as a whole (transport/team.h), if it can.
  std::optional<Duration> whole;
};

inline constexpr int kWhole = -1;  // instead of an index of a family
inline constexpr const char* kWholeName = "shared memory";

// The bytes that a call is priced with.
std::size_t priced_bytes(CallKind kind, std::size_t bytes, int ranks) noexcept;

// kWhole, if no family costs less; else the index in algorithms_of(kind) of the family that costs
// least among topology.ranks() ranks; the first of those that cost the same. Ranks that pass the
// same get the same answer, on any machine: times are whole nanoseconds, and no sum of
// floating-point numbers is involved.
//   cost  that of cost() for each family, some milliseconds at 64 ranks: remember the answer
int choose(const Choice& call, const Topology& topology);

struct Price {
  int index = 0;  // in algorithms_of(kind), or kWhole
  const char* family = "";
  Duration time{};
};

// What the call costs as a whole, if it can be run so, and by the families that suit the topology
// (Algorithm::suits), in the order of algorithms_of(kind).
std::vector<Price> prices(const Choice& call, const Topology& topology);
// A table for people: the chosen family first, then the others from the cheapest to the dearest.
std::string explain(const Choice& call, const Topology& topology);

}  // namespace motley
