// comm/algorithm/check.h: proves schedules right without a network.
//
//   const Verdict verdict = check(CallKind::kAllReduce, all_reduce_algorithms()[1], 8);
//   if (!verdict.ok()) std::puts(verdict.flaw.c_str());
//
// The schedules of all ranks are run on symbols by the rules of schedule.h, with a window of 2 and
// synchronous sends. By those rules nothing that can happen ever prevents something else, and what
// a message carries does not depend on timing; so one run decides about all runs, and one that
// completes with the smallest window and the strictest sends completes with larger windows and
// looser sends, with the same result.
//
// The schedules are wrong if
// - a step names no other rank, or chunks that do not exist; or ranks cut the buffer differently;
// - a message does not move the chunks that its receive expects, or has no receive, or a receive
//   gets no message; or the ranks wait for each other in a circle;
// - all_reduce: a rank ends with a chunk in which a term is missing or counted twice, or which was
//   reduced in another order than the others' (op is taken to be commutative);
// - broadcast: a chunk is sent or reduced by a rank that does not have it, or a rank does not end
//   with the root's data;
// - barrier: a rank can finish before each rank has started.
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

// Judges a family for one group size; a broadcast, for every root.
Verdict check(CallKind kind, const Algorithm& family, int size);

}  // namespace motley
