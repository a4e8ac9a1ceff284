// Where ranks that share memory look for each other's parts of a call: not only where they are as a
// rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "comm/communicator.h"
#include "comm/transport/shm_board.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using testing::Each;

// The first group, but `not_this`, whose first call is looked for at that seat.
GroupTag looked_for_at(int seat, std::uint64_t not_this) {
  GroupTag tag{.id = 1};
  while (tag.id == not_this || seat_hint(hash(tag), 0) != seat) ++tag.id;
  return tag;
}

// Rank 0 begins a call while its seat is in use, so somewhere else, and a later one of the same
// name where one looks first. Rank 1 takes the earlier one for its own first, also after a call
// between them, which it found at once.
TEST(ShmSeats, AnEarlierCallElsewhereIsMeantBeforeALaterOneWhereOneLooksFirst) {
  Options options;
  options.progress_thread = false;  // which might free the seat before its time
  std::latch first_is_begun(1), first_is_over(1), all_are_begun(1);
  const auto body = [&](Communicator& comm) {
    const GroupTag blocks{.id = 1};
    const int seat = seat_hint(hash(blocks), 0);
    const int before = (seat + ShmBoard::kSeats - 1) % ShmBoard::kSeats;
    const Group blocking({0, 1}, blocks), between({0, 1}, looked_for_at(before, blocks.id));
    const GroupTag name = looked_for_at(seat, blocks.id);
    const Group earlier({0, 1}, name), later({0, 1}, name);
    const auto start = [&comm](const Group& group, std::vector<std::int32_t>& data) {
      return comm.all_reduce(data, ReduceOp::kSum, {.group = &group});
    };
    const bool zero = comm.rank() == 0;
    std::vector<std::int32_t> other(3), one(3, zero ? 1 : 100), two(3, zero ? 10 : 1000);
    if (zero) {
      Request blocker = start(blocking, other);
      first_is_begun.count_down();
      first_is_over.wait();
      Request elsewhere = start(earlier, one);
      blocker.wait();
      Request here = start(later, two);
      all_are_begun.count_down();
      start(between, other).wait();
      elsewhere.wait();
      here.wait();
    } else {
      first_is_begun.wait();
      start(blocking, other).wait();
      first_is_over.count_down();
      all_are_begun.wait();
      start(between, other).wait();  // frees the seat here, too
      start(earlier, one).wait();
      start(later, two).wait();
    }
    EXPECT_THAT(one, Each(101));
    EXPECT_THAT(two, Each(1010));
  };
  test::run_ranks_on("shm", 2, body, options);
}

}  // namespace
}  // namespace motley
