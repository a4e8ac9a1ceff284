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

// The chunks of one rank and its steps.
struct RankPlan {
  int chunks = 1;         // scratch included
  std::vector<int> like;  // the last so many are scratch; each as large as the chunk named here
  Program steps;
};

// True if in every order tried: messages and receives correspond, all ranks finish, and the data is
// right (each rank ends with what the collective is to give it, no block of `in` is written, nobody
// reads what it has not; barrier: no rank finishes while another has not started). Where blocks may
// differ in size, they do, so that no message may move another's. Orders tried:
// synchronous sends that are read as late as possible with a window of 2, and sends that finish and
// are read at once with a window of 8; ranks that run as far as they can, in ascending and
// descending order, and ranks that take single steps in a shuffled order.
bool right_by_brute_force(CallKind kind, const std::vector<RankPlan>& plans, int root);

}  // namespace motley::test
