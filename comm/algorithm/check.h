// comm/algorithm/check.h: proves schedules right without a network.
//
//   const Algorithm& ring = algorithms_of(CallKind::kAllReduce)[1];
//   const Verdict verdict = check(CallKind::kAllReduce, ring, 8);
//   if (!verdict.ok()) std::puts(verdict.flaw.c_str());
//
// The schedules of all ranks are run on symbols by the rules of schedule.h, with a window of 2 and
// synchronous sends. By those rules nothing that can happen ever prevents something else, and what
// a message carries does not depend on timing; so one run decides about all runs, and one that
// completes with the smallest window and the strictest sends completes with larger windows and
// looser sends, with the same result.
//
// The schedules are wrong if
// - a step names no other rank, or chunks that do not exist, or writes a block of `in`; or ranks do
//   not number chunks as place_of() says, or cut a buffer differently;
// - a message does not have the sizes that its receive expects, or has no receive, or a receive
//   gets no message; or the ranks wait for each other in a circle; or a copy or reduction within a
//   rank joins chunks of different sizes (blocks differ in size where varies(kind));
// - what was never written is sent, copied or reduced;
// - all_reduce, reduce, reduce_scatter: a result lacks a term or has one twice, or is of another
//   chunk or block, or (all_reduce) was reduced in another order than on the other ranks (op is
//   taken to be commutative);
// - barrier: a rank can finish before each rank has started;
// - any other: a rank does not end with exactly the blocks that are due to it.
#pragma once

#include <string>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/call_kind.h"

namespace motley {

struct Verdict {
  std::string flaw;  // which rank, step and chunk, and what is wrong with them; empty if nothing is
  bool ok() const noexcept { return flaw.empty(); }
};

// Judges the schedules of all ranks of a group, that of rank r at position r.
//   cost  O(messages * chunks moved) time, O(ranks * chunks) memory
Verdict check(CallKind kind, const std::vector<Schedule>& schedules, int root = 0);

// Judges a family for one group size and, if has_root(kind), for every root; both schedules of one
// that has a `rest`. `topology`, if any, is that of the group.
Verdict check(CallKind kind, const Algorithm& family, int size, const Topology* topology = nullptr);

}  // namespace motley
