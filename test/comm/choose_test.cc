// The chooser takes the cheapest family: few steps for short buffers, few bytes for long ones.
#include "comm/algorithm/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"
#include "comm/algorithm/schedule.h"

namespace motley {
namespace {

std::string chosen(std::size_t bytes, const Topology& topology) {
  const int index = choose({.kind = CallKind::kAllReduce, .bytes = bytes}, topology);
  return algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(index)].name;
}

TEST(Choose, FewStepsForShortBuffers) {
  for (const int ranks : {32, 48, 64}) {
    for (const std::size_t bytes : {0, 4, 1'000}) {
      EXPECT_EQ(chosen(bytes, Topology::uniform(ranks)), "halving_doubling")
          << ranks << " " << bytes;
    }
  }
  EXPECT_EQ(chosen(4, Topology::uniform(3)), "direct");  // both messages of a phase at once
}

// With 48 ranks halving-doubling sends the whole buffer twice more.
TEST(Choose, FewBytesForLongBuffers) {
  for (const int ranks : {3, 7, 48}) {
    EXPECT_NE(chosen(100 << 20, Topology::uniform(ranks)), "halving_doubling") << ranks;
  }
}

TEST(Choose, TakesTheCheapest) {
  for (const int ranks : {1, 2, 5, 16, 64, 500}) {
    for (const std::size_t bytes : {0, 1, 10'000, 10'000'000}) {
      const Topology topology = Topology::uniform(ranks);
      const int index = choose({.kind = CallKind::kAllReduce, .bytes = bytes}, topology);
      const Duration least =
          cost(algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(index)],
               {.bytes = bytes}, topology);
      for (const Algorithm& family : algorithms_of(CallKind::kAllReduce)) {
        EXPECT_LE(least, cost(family, {.bytes = bytes}, topology))
            << family.name << " " << ranks << " " << bytes;
      }
    }
  }
}

TEST(Choose, ExplainsItself) {
  const Choice call{.kind = CallKind::kAllReduce, .bytes = 1000};
  const Topology topology = Topology::uniform(48);
  const std::vector<Price> all = prices(call, topology);
  ASSERT_EQ(all.size(), algorithms_of(CallKind::kAllReduce).size());
  const std::string text = explain(call, topology);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_STREQ(all[i].family, algorithms_of(CallKind::kAllReduce)[i].name);
    EXPECT_EQ(all[i].time,
              cost(algorithms_of(CallKind::kAllReduce)[i], {.bytes = call.bytes}, topology));
    const std::size_t row = text.find(std::string("\n  ") + all[i].family + " ");
    ASSERT_NE(row, std::string::npos) << text;
    EXPECT_EQ(row == text.find('\n'), all[i].family == chosen(1000, topology)) << text;
  }
  EXPECT_THAT(text, ::testing::HasSubstr("48 ranks"));
  EXPECT_THAT(text, ::testing::HasSubstr(": " + chosen(1000, topology) + "\n"));
}

TEST(Choose, HasOneAnswerWhereThereIsOneFamily) {
  EXPECT_EQ(choose({.kind = CallKind::kBarrier}, Topology::uniform(5)), 0);
  EXPECT_EQ(choose({.kind = CallKind::kBroadcast, .bytes = 9, .root = 3}, Topology::uniform(5)), 0);
}

}  // namespace
}  // namespace motley
