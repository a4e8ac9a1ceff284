// Scenario 5: more than 2^31 elements, for real. Takes 4.3 GB of memory.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

// Sums that differ from place to place: a truncated count or a wrapped offset shows.
TEST(Large, Scenario5AllReduceOfMoreThan2To31Elements) {
  constexpr std::size_t kCount = (std::size_t{1} << 31) + 5;
  test::run_ranks(2,
                  [](Communicator& comm) {
                    std::vector<std::int8_t> data(kCount);
                    for (std::size_t i = 0; i < kCount; i += 4096 + 1)
                      data[i] =
                          static_cast<std::int8_t>(i % 50 + static_cast<std::size_t>(comm.rank()));
                    data[kCount - 1] = 7;
                    comm.all_reduce(data, ReduceOp::kSum).wait();
                    for (std::size_t i = 0; i < kCount - 1; i += 4096 + 1)
                      ASSERT_EQ(data[i], static_cast<std::int8_t>(2 * (i % 50) + 1)) << i;
                    EXPECT_EQ(data[kCount - 1], 14);
                    EXPECT_EQ(data[1], 0);
                  },
                  {.timeout = seconds(300)});
}

}  // namespace
}  // namespace motley
