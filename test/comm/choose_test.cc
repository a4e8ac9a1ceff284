// The chooser takes the cheapest family: few steps for short buffers, few bytes for long ones.
#include "comm/algorithm/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

#include "comm/algorithm/chooser.h"
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
      EXPECT_THAT(chosen(bytes, Topology::uniform(ranks)),
                  ::testing::AnyOf("halving_doubling", "tree"))
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
               {.bytes = bytes, .segment_bytes = Choice{}.segment_bytes}, topology);
      for (const Algorithm& family : algorithms_of(CallKind::kAllReduce)) {
        EXPECT_LE(least,
                  cost(family, {.bytes = bytes, .segment_bytes = Choice{}.segment_bytes}, topology))
            << family.name << " " << ranks << " " << bytes;
      }
    }
  }
}

TEST(Choose, ExplainsItself) {
  const Choice call{.kind = CallKind::kAllReduce, .bytes = 1000};
  const Topology topology = Topology::uniform(48);
  const std::vector<Price> all = prices(call, topology);
  ASSERT_GE(all.size(), 3U);
  const std::string text = explain(call, topology);
  for (const Price& price : all) {
    const Algorithm& family =
        algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(price.index)];
    EXPECT_STREQ(price.family, family.name);
    EXPECT_EQ(price.time, cost(family, {.bytes = call.bytes}, topology));
    const std::size_t row = text.find(std::string("\n  ") + price.family + " ");
    ASSERT_NE(row, std::string::npos) << text;
    EXPECT_EQ(row == text.find('\n'), price.family == chosen(1000, topology)) << text;
  }
  EXPECT_THAT(text, ::testing::HasSubstr("48 ranks"));
  EXPECT_THAT(text, ::testing::HasSubstr(": " + chosen(1000, topology) + "\n"));
}

// Hosts whose ranks share a slow port; 2 hosts of 4.
TEST(Choose, PricesHierarchiesOnlyWhereThereAreHosts) {
  const auto priced = [](const Topology& topology) {
    std::string names;
    for (const Price& price : prices({.kind = CallKind::kAllToAll, .bytes = 800}, topology))
      names += std::string(price.family) + " ";
    return names;
  };
  EXPECT_EQ(priced(Topology::uniform(4)), "direct pairwise bruck ");
  EXPECT_EQ(priced(Topology::hosts({0, 0, 1, 1}, {})),
            "direct pairwise bruck two_level two_level_pipelined leader ");
}

TEST(Chooser, GivesTheAnswerOfChooseForTheSizeClass) {
  const Topology world = Topology::hosts({0, 0, 0, 1, 1, 2, 2, 2}, {});
  Chooser chooser(world);
  for (const std::vector<int>& members :
       {std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}, {7, 0, 3}, {0, 1}, {5, 6}, {2}, {4, 7, 0}}) {
    const Group group(members, {.id = 5});
    EXPECT_EQ(chooser.among(group).ranks(), static_cast<int>(members.size()));
    for (const std::size_t bytes : {0, 3, 1'000, 1'000'000}) {
      const Choice call{.kind = CallKind::kAllReduce, .bytes = bytes};
      const Choice largest{.kind = CallKind::kAllReduce, .bytes = std::bit_ceil(bytes)};
      for (int repeat = 0; repeat < 2; ++repeat)
        EXPECT_EQ(chooser.choose(call, group), choose(largest, world.subset(members)));
    }
  }
}

TEST(Chooser, KnowsTheGroupOfAllRanks) {
  const Topology world = Topology::hosts({0, 1, 0, 1}, {});
  Chooser chooser(world);
  EXPECT_EQ(chooser.among(Group::world(4)), world);
  EXPECT_EQ(chooser.among(Group({0, 2, 1, 3})), world.subset({0, 2, 1, 3})) << "in another order";
  EXPECT_EQ(chooser.choose({.bytes = 4096}, Group::world(4)), choose({.bytes = 4096}, world));
}

// A host that differs in its port, or has a link of its own, does not pass for another.
TEST(Chooser, TellsHostsApartThatDiffer) {
  const Link slow{std::chrono::milliseconds(5), 1e7};
  const Topology world({{.ranks = {0}, .ports = 1, .port_bytes_per_second = 1e9},
                        {.ranks = {1}, .ports = 1, .port_bytes_per_second = 1e9},
                        {.ranks = {2}, .ports = 1, .port_bytes_per_second = 1e8},
                        {.ranks = {3}, .ports = 1, .port_bytes_per_second = 1e9}},
                       {}, {{0, 3, slow}});
  Chooser chooser(world);
  EXPECT_EQ(chooser.among(Group({1, 2}, {.id = 5})).hosts()[1].port_bytes_per_second, 1e8);
  EXPECT_EQ(chooser.among(Group({1, 0}, {.id = 5})).hosts()[1].port_bytes_per_second, 1e9);
  EXPECT_EQ(chooser.among(Group({0, 1}, {.id = 5})).link(0, 1), world.costs().between);
  EXPECT_EQ(chooser.among(Group({0, 3}, {.id = 5})).link(0, 1), slow);
  EXPECT_EQ(chooser.among(Group({1, 3}, {.id = 5})).link(0, 1), world.costs().between);
}

TEST(Choose, HasOneAnswerWhereThereIsOneFamily) {
  EXPECT_EQ(choose({.kind = CallKind::kBarrier}, Topology::uniform(5)), 0);
  EXPECT_EQ(choose({.kind = CallKind::kBroadcast, .bytes = 9, .root = 3}, Topology::uniform(5)), 0);
}

}  // namespace
}  // namespace motley
