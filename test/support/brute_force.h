// test/support/brute_force.h: runs the schedules of a small group by the letter of schedule.h, in
// several orders of events, and says whether they are right. Shares no code with
// comm/algorithm/check.
#pragma once

#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/call_kind.h"

namespace motley::test {

inline constexpr int kBruteForceRanks = 8;  // at most so many ranks

// The steps of one rank of a group.
using Program = std::vector<Step>;

// True if in every order tried: messages and receives correspond, all ranks finish, and the data is
// right (all_reduce: each term once, combined alike on all ranks; broadcast: the root's, and nobody
// sends what it has not; barrier: no rank finishes while another has not started). Orders tried:
// synchronous sends that are read as late as possible with a window of 2, and sends that finish and
// are read at once with a window of 8; ranks that run as far as they can, in ascending and
// descending order, and ranks that take single steps in a shuffled order.
bool right_by_brute_force(CallKind kind, int chunks, const std::vector<Program>& programs,
                          int root);

}  // namespace motley::test
