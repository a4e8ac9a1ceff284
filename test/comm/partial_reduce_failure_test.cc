// Partial-reduce when something goes wrong: a member dies at any moment, a rank is declared dead,
// is late, or disagrees. Survivors retry, end alike and go on; nobody waits for ever.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <random>
#include <utility>

#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::AnyOf;
using testing::Each;
using testing::ElementsAre;

// Scenario 32: rank 3 gets into a group and then dies without a word to its peers, after the match
// and before any data. They are told, and do not wait for what they would otherwise: half of the
// time that they have.
TEST(PartialReduce, PartialScenario6And14And18AndScenario32RetriesWithTheSurvivorsOfAGroup) {
  const auto body = [](Communicator& comm, LocalControl& control) {
    if (comm.rank() == 3) {
      comm.control()->ready(0, note_of(4), Clock::real().now() + seconds(20));
      return control.report_lost(3, "the test ended it");
    }
    PartialReducer reducer(comm, {.group_size = 4});
    std::vector<double> model(1000, comm.rank());
    const PartialResult result = reducer.average(model, 0);
    EXPECT_THAT(result.group, ElementsAre(0, 1, 2));
    EXPECT_EQ(result.attempts, 2);
    EXPECT_LT(to_seconds(result.averaging), 10);
    EXPECT_THAT(model, Each(1.0));  // (0 + 1 + 2) / 3
  };
  run(4, body, seconds(60));
}

// Invariant 11: after attempts that were aborted the model has the bits that it had.
TEST(PartialReduce, Invariant11GoesOnAloneWhenAllOthersHaveDied) {
  run(3, [](Communicator& comm, LocalControl& control) {
    if (comm.rank() != 1) {
      comm.control()->ready(0, note_of(3), Clock::real().now() + seconds(20));
      return control.report_lost(comm.rank(), "the test ended it");
    }
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<double> model = {0.1, 0.2};
    const PartialResult result = reducer.average(model, 0);
    EXPECT_TRUE(result.solo());
    EXPECT_GE(result.attempts, 2);
    EXPECT_THAT(model, ElementsAre(0.1, 0.2));
    EXPECT_TRUE(reducer.average(model, 1).solo());
  });
}

// How a rank of the next test ends: it says no more at a moment that `random` chooses.
void die(Communicator& comm, LocalControl& control, std::mt19937_64& random, int group_size) {
  const int moment = static_cast<int>(random() % 4);
  std::vector<double> model(5000, 1.0), average(5000);
  if (moment > 0) {
    const GroupOutcome outcome =
        comm.control()->ready(0, note_of(group_size), Clock::real().now() + seconds(20));
    if (outcome.kind == GroupOutcome::kGroup && moment > 1) {
      const Group group(outcome.members, outcome.tag);
      Request request =
          comm.all_reduce(std::as_const(model), average, ReduceOp::kAverage, {.group = &group});
      for (auto polls = random() % 8; polls > 0 && !request.test(); --polls)
        std::this_thread::yield();
      if (moment > 2) request.wait();  // its peers may complete, and it dies before it says so
    }
  }
  control.report_lost(comm.rank(), "the test ended it");
}

// What `rank` held after each average that it made with `other`.
std::vector<std::vector<double>> common(const std::vector<std::vector<Record>>& records, int rank,
                                        int other) {
  std::vector<std::vector<double>> results;
  for (const Record& record : records[static_cast<std::size_t>(rank)]) {
    if (std::ranges::count(record.group, other) > 0) results.push_back(record.after);
  }
  return results;
}

TEST(PartialReduce, EndsAlikeForAllSurvivorsWheneverRanksDie) {
  constexpr int kSize = 6;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int group_size = 2 + static_cast<int>(seed % 4);
    std::vector<std::vector<Record>> records(kSize);
    std::array<std::atomic<bool>, kSize> died{};
    run(kSize, [&](Communicator& comm, LocalControl& control) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      std::mt19937_64 random(seed * 100 + rank);
      PartialReducer reducer(comm, {.group_size = group_size});
      std::vector<double> model(5000, comm.rank());
      for (auto step = static_cast<std::int64_t>(random() % 8); step >= 0; --step) {
        const PartialResult result = reducer.average(model, -step);
        EXPECT_THAT(result.weights, testing::SizeIs(result.healed ? 0 : result.group.size()));
        records[rank].push_back({result.group, {}, model, {}});
      }
      if (random() % 2 == 0) return;
      died[rank] = true;
      try {
        die(comm, control, random, group_size);
      } catch (const Error& error) {  // a peer of its last group died before it
        EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << error.what();
        control.report_lost(comm.rank(), "the test ended it");
      }
    });
    for (int a = 0; a < kSize; ++a) {
      for (int b = 0; b < a; ++b) {
        auto of_a = common(records, a, b);
        auto of_b = common(records, b, a);
        // One that died in its last group has no record of it; the other may have.
        if (died[static_cast<std::size_t>(a)] && of_b.size() == of_a.size() + 1) of_b.pop_back();
        if (died[static_cast<std::size_t>(b)] && of_a.size() == of_b.size() + 1) of_a.pop_back();
        EXPECT_TRUE(of_a == of_b) << "ranks " << a << " and " << b;
      }
    }
  }
}

TEST(PartialReduce, StopsARankThatWasDeclaredDead) {
  run(2, [](Communicator& comm, LocalControl& control) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<double> model(10, comm.rank());
    if (comm.rank() == 1) {
      control.report_lost(1, "a rumour");
      expect_error(ErrorCode::kAborted, "a rumour", [&] {
        while (true) reducer.average(model, 0);
      });
      EXPECT_THAT(model, Each(1.0));
    } else {
      while (!reducer.average(model, 0).solo()) {
      }
      EXPECT_THAT(model, Each(0.0));
    }
  });
}

// Scenario 32: no time at all is an answer at once, with the model as it was; groups of one cannot
// be asked for, and whoever is left alone is told so.
TEST(PartialReduce, Scenario32NoTimeAndNobodyElse) {
  std::atomic<bool> tried{false};
  run(2, [&](Communicator& comm, LocalControl&) {
    std::vector<double> model(10, comm.rank());
    if (comm.rank() == 1) {
      tried.wait(false);
      comm.control()->leave(Clock::real().now() + seconds(20));
      return;
    }
    expect_error(ErrorCode::kInvalid, "1", [&] { PartialReducer(comm, {.group_size = 1}); });
    {
      PartialReducer hasty(comm, {.group_size = 2, .timeout = Duration(1)});
      expect_error(ErrorCode::kTimeout, "step 3", [&] { hasty.average(model, 3); });
    }
    tried = true;
    tried.notify_one();
    PartialReducer patient(comm, {.group_size = 2});
    EXPECT_TRUE(patient.average(model, 4).solo());
    EXPECT_THAT(model, Each(0.0));
  });
}

TEST(PartialReduce, TimesOutAndMayBeUsedAgain) {
  std::atomic<bool> first_is_late{false};
  run(2, [&](Communicator& comm, LocalControl&) {
    std::vector<double> model(10, comm.rank());
    if (comm.rank() == 1) first_is_late.wait(false);
    PartialReducer reducer(comm,
                           {.group_size = 2, .timeout = seconds(comm.rank() == 0 ? 1.5 : 20)});
    if (comm.rank() == 0) {
      expect_error(ErrorCode::kTimeout, "step 7", [&] { reducer.average(model, 7); });
      EXPECT_THAT(model, Each(0.0));
      first_is_late = true;
      first_is_late.notify_one();
    }
    EXPECT_THAT(reducer.average(model, 8).group, ElementsAre(0, 1));
    EXPECT_THAT(model, Each(0.5));
  });
}

TEST(PartialReduce, PartialScenario9RefusesModelsOfDifferentSizes) {
  run(
      2,
      [](Communicator& comm, LocalControl&) {
        PartialReducer reducer(comm, {.group_size = 2});
        std::vector<double> model(10 + static_cast<std::size_t>(comm.rank()), comm.rank());
        try {
          reducer.average(model, 0);
          // The other may have withdrawn before this one saw anything of it: then it goes on alone,
          // or times out.
        } catch (const Error& error) {
          EXPECT_THAT(error.code(), AnyOf(ErrorCode::kMismatch, ErrorCode::kTimeout))
              << error.what();
        }
        EXPECT_THAT(model, Each(static_cast<double>(comm.rank())));
      },
      seconds(2));
}

TEST(PartialReduce, RefusesGroupSizesThatDiffer) {
  std::atomic<int> mismatches{0};
  run(
      3,
      [&](Communicator& comm, LocalControl&) {
        PartialReducer reducer(comm, {.group_size = comm.rank() == 0 ? 2 : 3});
        std::vector<double> model(10);
        try {
          reducer.average(model, 0);
        } catch (const Error& error) {
          if (error.code() == ErrorCode::kMismatch) ++mismatches;
        }
      },
      seconds(1));
  EXPECT_GE(mismatches, 1);
}

// The others have gone on with an average that this rank could not complete, as one can see from
// outside: rank 0 has all of it, and rank 2 died before rank 1 had its part. Rank 0 hands it on at
// its next call; I4 and I11 hold.
TEST(PartialReduce, Invariant4HealsAMemberThatMissedTheAverage) {
  std::atomic<bool> first_is_done{false};
  run(3, [&](Communicator& comm, LocalControl& control) {
    const TimePoint deadline = Clock::real().now() + seconds(20);
    std::vector<double> model(100, comm.rank());
    if (comm.rank() == 0) {
      PartialReducer reducer(comm, {.group_size = 3});
      // As if it had completed it: what counts is what it says and keeps.
      const PartialResult result = reducer.average(model, 0);
      EXPECT_THAT(model, Each(1.0));
      EXPECT_THAT(result.group, ElementsAre(0, 1, 2));
      first_is_done = true;
      first_is_done.notify_one();
      reducer.leave();
      EXPECT_THAT(model, Each(1.0));
      return;
    }
    const GroupOutcome outcome = comm.control()->ready(0, note_of(3), deadline);
    ASSERT_EQ(outcome.kind, GroupOutcome::kGroup);
    const Group group(outcome.members, outcome.tag);
    std::vector<double> average(100);
    comm.all_reduce(std::as_const(model), average, ReduceOp::kAverage, {.group = &group}).wait();
    if (comm.rank() == 2) return control.report_lost(2, "the test ended it");
    first_is_done.wait(false);
    const GroupOutcome heal = comm.control()->fail(outcome.tag, outcome.members,
                                                   {ErrorCode::kPeerLost, 2}, note_of(3), deadline);
    ASSERT_EQ(heal.kind, GroupOutcome::kHeal);
    EXPECT_THAT(heal.members, ElementsAre(0, 1));
    const Group pair(heal.members, heal.tag);
    comm.broadcast(model, heal.note.donor, {.group = &pair}).wait();
    EXPECT_THAT(model, Each(1.0));
    comm.control()->done(heal.tag, heal.members);
    EXPECT_EQ(comm.control()->leave(deadline).kind, GroupOutcome::kSolo);
  });
}

// The same as the member sees it: rank 0 says that it has the average, which it has from elsewhere,
// and then rank 2 dies.
TEST(PartialReduce, TellsWhoHandedAnAverageOnAndNoWeights) {
  std::latch done(1);
  run(3, [&](Communicator& comm, LocalControl& control) {
    const TimePoint deadline = Clock::real().now() + seconds(20);
    std::vector<double> model(100, comm.rank());
    if (comm.rank() == 1) {
      PartialReducer reducer(comm, {.group_size = 3});
      const PartialResult result = reducer.average(model, 0);
      EXPECT_TRUE(result.healed);
      EXPECT_THAT(result.group, ElementsAre(0, 1));
      EXPECT_THAT(result.weights, testing::IsEmpty());
      EXPECT_THAT(model, Each(42));
      return;
    }
    const GroupOutcome outcome = comm.control()->ready(0, note_of(3), deadline);
    ASSERT_EQ(outcome.kind, GroupOutcome::kGroup);
    if (comm.rank() == 2) {
      done.wait();
      return control.report_lost(2, "the test ended it");
    }
    comm.control()->done(outcome.tag, outcome.members);
    done.count_down();
    const GroupOutcome heal = comm.control()->leave(deadline);
    ASSERT_EQ(heal.kind, GroupOutcome::kHeal);
    std::fill(model.begin(), model.end(), 42);
    const Group pair(heal.members, heal.tag);
    comm.broadcast(model, heal.note.donor, {.group = &pair}).wait();
    comm.control()->done(heal.tag, heal.members);
    EXPECT_EQ(comm.control()->leave(deadline).kind, GroupOutcome::kSolo);
  });
}

}  // namespace
}  // namespace motley::test
