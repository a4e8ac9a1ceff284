// Numbers handed out to ranks are each counted exactly once: by ranks of any speed, with ranks that
// come late, leave early and die; the desk alone under seeded orders, then real clients.
#include "comm/supply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "comm/control/range_set.h"
#include "comm/control/supply_desk.h"
#include "comm/local.h"
#include "test/support/errors.h"

namespace motley {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(RangeSet, JoinsWhatTouchesAndCutsWhatIsTakenOut) {
  RangeSet set;
  set.add({10, 20});
  set.add({30, 40});
  set.add({20, 30});
  EXPECT_THAT(set.ranges(), ElementsAre(Range{10, 40}));
  EXPECT_TRUE(set.remove({15, 20}));
  EXPECT_FALSE(set.remove({14, 16})) << "one of them is not in it";
  EXPECT_THAT(set.ranges(), ElementsAre(Range{10, 15}, Range{20, 40}));
  EXPECT_THAT(set.take(7), ElementsAre(Range{10, 15}, Range{20, 22}));
  EXPECT_EQ(set.count(), 18);
  EXPECT_FALSE(set.contains({0, 1}));
  EXPECT_TRUE(set.contains({22, 40}));
}

TEST(RangeSet, IsAsASetOfNumbersInAnyOrder) {
  std::mt19937 random(5);
  RangeSet set;
  std::vector<bool> in(200);
  for (int i = 0; i < 5000; ++i) {
    const auto a = static_cast<std::int64_t>(random() % 200);
    const Range range{a, std::min<std::int64_t>(200, a + 1 + random() % 12)};
    const auto first = in.begin() + range.begin, last = in.begin() + range.end;
    const bool all = std::find(first, last, false) == last;
    const bool none = std::find(first, last, true) == last;
    ASSERT_EQ(set.contains(range), all);
    if (none) {
      set.add(range);
      std::fill(first, last, true);
    } else {
      ASSERT_EQ(set.remove(range), all);
      if (all) std::fill(first, last, false);
    }
    ASSERT_EQ(set.count(), std::count(in.begin(), in.end(), true));
  }
}

TEST(Ranges, AreReadOnlyIfTheyAreSound) {
  const std::vector<std::vector<Range>> lists = {{{3, 5}, {0, 2}}, {}};
  const std::string text = encode_ranges(lists);
  EXPECT_EQ(decode_ranges(text, 2, 5), lists);
  EXPECT_THAT(decode_ranges(text, 2, 4), IsEmpty()) << "5 is outside";
  EXPECT_THAT(decode_ranges(text, 1, 5), IsEmpty()) << "one list too many";
  EXPECT_THAT(decode_ranges(text + "x", 2, 5), IsEmpty());
  EXPECT_THAT(decode_ranges(encode_ranges({{{1, 4}, {3, 5}}}), 1, 9), IsEmpty()) << "twice 3";
  EXPECT_THAT(decode_ranges(encode_ranges({{{4, 4}}}), 1, 9), IsEmpty());
  EXPECT_THAT(decode_ranges(encode_ranges({{{4, 1}}}), 1, 9), IsEmpty());
  for (std::size_t i = 0; i < text.size(); ++i) {
    EXPECT_THAT(decode_ranges(text.substr(0, i), 2, 5), IsEmpty()) << i;
  }
}

// A rank of the model below: what it would know.
struct Holder {
  std::vector<Range> held;
  std::vector<Range> counted;  // not told yet
  bool waits = false;
};

// Ranks that take, count, forget an answer, leave and die in any order.
class DeskModel {
 public:
  DeskModel(unsigned seed, int ranks, std::int64_t count)
      : random_(seed), holders_(static_cast<std::size_t>(ranks)), times_(count), count_(count) {
    for (int rank = 0; rank < ranks; ++rank) {
      take_in(desk_.request(rank, {.type = MessageType::kSupplyOpen,
                                   .number = count,
                                   .key = "s",
                                   .value = encode_ranges({{{0, count}}})}));
    }
  }

  bool over() const { return over_; }
  const std::vector<int>& times() const { return times_; }

  void step() {
    const int rank = static_cast<int>(random_() % holders_.size());
    Holder& holder = holders_[static_cast<std::size_t>(rank)];
    switch (random_() % 8) {
      case 0:  // dies, or leaves: another process takes its place
        holder = {};
        return take_in(desk_.gone(rank));
      case 1:  // gives up waiting, knowing nothing of an answer on its way
        holder.waits = false;
        return;
      default:
        if (holder.waits) return;
        count_some(holder);
        holder.waits = holder.held.empty();
        const std::string value = encode_ranges({holder.counted, holder.held});
        holder.counted.clear();
        take_in(
            desk_.request(rank, {.type = MessageType::kSupplyTake,
                                 .number = holder.waits ? 1 + static_cast<int>(random_() % 9) : 0,
                                 .key = "s",
                                 .value = value}));
    }
  }

 private:
  void count_some(Holder& holder) {
    for (const Range& range : holder.held) {
      for (std::int64_t i = range.begin; i < range.end; ++i) ++times_[static_cast<std::size_t>(i)];
      holder.counted.push_back(range);
    }
    holder.held.clear();
  }

  void take_in(const std::vector<SupplyDesk::Answer>& answers) {
    for (const SupplyDesk::Answer& answer : answers) {
      ASSERT_NE(answer.message.type, MessageType::kError) << answer.message.value;
      if (answer.message.type != MessageType::kValue) continue;
      Holder& holder = holders_[static_cast<std::size_t>(answer.rank)];
      if (answer.message.number == 0) over_ = true;
      const auto lists = decode_ranges(answer.message.value, 2, count_);
      ASSERT_EQ(lists.size(), 2u);
      if (holder.waits) holder.held = lists.front();
      holder.waits = false;
    }
  }

  std::mt19937 random_;
  SupplyDesk desk_;
  std::vector<Holder> holders_;
  std::vector<int> times_;
  std::int64_t count_;
  bool over_ = false;
};

TEST(SupplyDesk, LetsEveryNumberBeCountedOnceInAnyOrderOfEvents) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    DeskModel model(seed, 1 + static_cast<int>(seed % 5), 1 + seed % 120);
    for (int step = 0; !model.over() && step < 20000; ++step) model.step();
    ASSERT_TRUE(model.over());
    ASSERT_THAT(model.times(), Each(1));
  }
}

TEST(SupplyDesk, RefusesCountsOfWhatARankDoesNotHold) {
  SupplyDesk desk;
  const auto ask = [&](int rank, MessageType type, std::int64_t number,
                       const std::vector<std::vector<Range>>& lists) {
    return desk
        .request(rank, {.type = type, .number = number, .key = "s", .value = encode_ranges(lists)})
        .at(0)
        .message;
  };
  ask(0, MessageType::kSupplyOpen, 10, {{{0, 10}}});
  EXPECT_EQ(ask(0, MessageType::kSupplyTake, 4, {{}, {}}).value,
            encode_ranges({{{0, 4}}, {{0, 10}}}));
  EXPECT_EQ(ask(1, MessageType::kSupplyTake, 0, {{{0, 1}}, {}}).type, MessageType::kError);
  EXPECT_EQ(ask(0, MessageType::kSupplyTake, 0, {{{0, 2}}, {{2, 4}}}).number, 8);
  EXPECT_EQ(ask(0, MessageType::kSupplyTake, 0, {{{1, 2}}, {{2, 4}}}).type, MessageType::kError);
  EXPECT_EQ(ask(1, MessageType::kSupplyOpen, 11, {{{0, 11}}}).type, MessageType::kError);
}

// Ranks count what they get until the supply is empty; `leaves_after` parts the rank goes.
std::vector<int> counted_by(
    int ranks, std::int64_t count,
    const std::function<void(Communicator&, Supply&, const std::function<bool(std::int64_t)>&)>&
        body) {
  std::vector<std::atomic<int>> times(static_cast<std::size_t>(count));
  run_local(ranks, [&](Communicator& comm) {
    Supply supply(comm, "epoch 0", {.count = count, .claim = 64});
    body(comm, supply, [&](std::int64_t most) {
      const Range part = supply.next(most);
      for (std::int64_t i = part.begin; i < part.end; ++i) ++times[static_cast<std::size_t>(i)];
      if (part.count() > 0) supply.count(part);
      return part.count() > 0;
    });
  });
  return {times.begin(), times.end()};
}

TEST(Supply, IsCountedOnceByRanksOfVeryUnequalSpeed) {
  std::atomic<std::int64_t> parts[4] = {};
  const auto times = counted_by(4, 3001, [&](Communicator& comm, Supply&, const auto& take) {
    // Rank r takes (r + 1)^2 at a time: in the same time more.
    const std::int64_t most = (comm.rank() + 1) * (comm.rank() + 1);
    while (take(most)) ++parts[comm.rank()];
  });
  EXPECT_THAT(times, Each(1));
}

// Rank 3 takes nothing before a third of all is counted, by others; rank 1 leaves when it has a
// part in hand, at about two thirds.
TEST(Supply, PartialScenario39IsCountedOnceThoughARankComesLateAndOneLeavesInTheMiddle) {
  constexpr std::int64_t kCount = 2000;
  std::atomic<std::int64_t> counted{0};
  std::atomic<std::int64_t> in_hand{0};
  std::atomic<bool> came{false}, left{false};
  const auto times =
      counted_by(4, kCount, [&](Communicator& comm, Supply& supply, const auto& take) {
        while (comm.rank() == 3 && counted < kCount / 3) std::this_thread::yield();
        if (comm.rank() == 3) came = true;
        while (true) {
          while (comm.rank() != 3 && counted > kCount / 2 && !came) std::this_thread::yield();
          while (comm.rank() != 1 && counted > kCount * 3 / 4 && !left) std::this_thread::yield();
          if (comm.rank() == 1 && counted > kCount * 2 / 3) {
            in_hand = supply.next(7).count();
            left = true;
            return supply.give_back();
          }
          if (!take(5)) return;
          counted += 5;
        }
      });
  EXPECT_THAT(times, Each(1));
  EXPECT_TRUE(came && left);
  EXPECT_GT(in_hand, 0);
}

TEST(Supply, OfOneRankNeedsNoController) {
  const auto times = counted_by(1, 1000, [&](Communicator&, Supply&, const auto& take) {
    while (take(33)) {
    }
  });
  EXPECT_THAT(times, Each(1));
}

TEST(Supply, IsGoneOnWithWhereItWasLeft) {
  run_local(1, [](Communicator& comm) {
    std::vector<Range> left;
    {
      Supply supply(comm, "a", {.count = 100});
      const Range first = supply.next(10);
      supply.count(first);
      (void)supply.next(10);  // and not counted
      left = supply.uncounted();
    }
    EXPECT_THAT(left, ElementsAre(Range{10, 100}));
    Supply again(comm, "b", {.count = 100, .uncounted = left});
    EXPECT_EQ(again.next(5), (Range{10, 15}));
    Supply over(comm, "c", {.count = 100, .uncounted = std::vector<Range>{}});
    EXPECT_EQ(over.next(5).count(), 0) << "all were counted";
  });
}

TEST(Supply, SaysWhatIsWrong) {
  run_local(2, [](Communicator& comm) {
    const std::int64_t count = comm.rank() == 0 ? 10 : 11;
    comm.barrier().wait();
    std::optional<Supply> supply;
    if (comm.rank() == 0) supply.emplace(comm, "s", SupplyOptions{.count = count});
    comm.barrier().wait();
    if (comm.rank() == 1) {
      test::expect_error(ErrorCode::kMismatch, {"supply \"s\"", "11", "10", "rank 0"},
                         [&] { Supply(comm, "s", {.count = count}); });
      return;
    }
    test::expect_error(ErrorCode::kInvalid, {"-1"}, [&] { Supply(comm, "t", {.count = -1}); });
    test::expect_error(ErrorCode::kInvalid, {"[0, 5)"}, [&] {
      Supply(comm, "u", {.count = 5, .uncounted = std::vector<Range>{{3, 6}}});
    });
    const Range part = supply->next(4);
    test::expect_error(ErrorCode::kInvalid, {"4 numbers"}, [&] { (void)supply->next(4); });
    test::expect_error(ErrorCode::kInvalid, {"count(3, 5)"}, [&] { supply->count({3, 5}); });
    supply->count(part);
  });
}

}  // namespace
}  // namespace motley
