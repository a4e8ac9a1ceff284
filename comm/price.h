// comm/price.h: what a collective costs on a topology, without running it: for planners and
// simulators that must think of calls as the library itself does.
//
//   const Duration time = price({.kind = CallKind::kAllToAllV, .bytes = 1 << 20}, comm.topology());
//
// It is the time by which algorithms are chosen (README.md), of a start at all ranks at once.
#pragma once

#include <cstddef>
#include <string>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/topology.h"

namespace motley {

struct PricedCall {
  CallKind kind = CallKind::kAllToAllV;
  std::size_t bytes = 0;  // of a rank's buffer, or of all its blocks, which are alike
  int root = 0;           // where there is one
  std::size_t segment_bytes = 128 << 10;  // Options::segment_bytes
  std::string algorithm = {};             // empty or "auto": as the call itself would choose
};

// By schedules in host memory; what a transport runs as a whole is priced by the cheapest of them.
//   errors  kInvalid for an algorithm that the call does not have, listing those it has
//   cost    some milliseconds at 64 ranks: remember the answer
Duration price(const PricedCall& call, const Topology& topology);

}  // namespace motley
