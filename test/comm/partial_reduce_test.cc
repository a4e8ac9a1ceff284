// Partial-reduce from end to end: ranks are threads over mailboxes, with a real controller between
// them. What is promised is shown for every group that forms: the mean is kept, members end equal,
// others are untouched, and whoever dies costs its group a retry.
#include "comm/partial_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/transport/inproc.h"
#include "test/comm/partial_ranks.h"
#include "test/support/usage.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 8 * a.size()) == 0);
}

struct Training {
  int size;
  int group_size;
  std::size_t n;
  std::vector<int> steps;  // by rank
  Weighting weighting{};
  bool announces = false;
};

// Each rank makes its steps; a step adds to the model what depends on rank and step only.
std::vector<std::vector<Record>> train(const Training& training, const Connect& connect) {
  std::vector<std::vector<Record>> records(static_cast<std::size_t>(training.size));
  const auto body = [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    PartialReducer reducer(comm,
                           {.group_size = training.group_size, .weighting = training.weighting});
    std::vector<double> model(training.n, static_cast<double>(rank));
    for (int step = 0; step < training.steps[rank]; ++step) {
      // Models of higher ranks have more steps in them.
      const auto count = static_cast<std::int64_t>(rank + 1) * step;
      if (training.announces) reducer.announce(count, seconds(0.0005));
      for (std::size_t i = 0; i < model.size(); ++i) {
        model[i] += static_cast<double>((rank + 1) * (i % 7) + static_cast<std::size_t>(step));
      }
      Record record{.group = {}, .before = model, .after = {}, .weights = {}};
      const PartialResult result = reducer.average(model, count);
      record.group = result.group;
      record.weights = result.weights;
      record.after = model;
      EXPECT_GE(result.staleness, 0);
      records[rank].push_back(std::move(record));
    }
    reducer.leave();
    reducer.leave();  // leaving twice is leaving once
  };
  run_threads(training.size, connect, body, seconds(20));
  return records;
}

std::vector<std::vector<Record>> train(const Training& training) {
  LocalControl control(training.size);
  return train(training, [&](int rank) { return control.connect(rank); });
}

// Invariants 1 to 4 for one group: its members hold one result, the weighted mean of what they
// brought; uniform or damped it has the sum of that, and always it lies between the least and most.
void check_group(const Training& training, const std::vector<const Record*>& members) {
  const std::size_t p = members.size();
  const bool damps = training.weighting.damped && p > 1;
  const std::vector<double> matrix = damped(members.front()->weights);
  for (std::size_t i = 0; i < training.n; ++i) {
    double sum = 0, sum_after = 0, least = members.front()->before[i], most = least;
    for (const Record* member : members) {
      sum += member->before[i];
      sum_after += member->after[i];
      least = std::min(least, member->before[i]);
      most = std::max(most, member->before[i]);
    }
    const double tolerance = 1e-12 * (1 + sum);
    if (damps || training.weighting.rule == WeightRule::kUniform) {
      ASSERT_NEAR(sum_after, sum, tolerance);
    }
    for (std::size_t m = 0; m < p; ++m) {
      double expected = 0;
      for (std::size_t j = 0; j < p; ++j) {
        expected += (damps ? matrix[m * p + j] : members[m]->weights[j]) * members[j]->before[i];
      }
      ASSERT_NEAR(members[m]->after[i], expected, tolerance);
      ASSERT_GE(members[m]->after[i], least - tolerance);
      ASSERT_LE(members[m]->after[i], most + tolerance);
    }
  }
  for (const Record* member : members) {
    ASSERT_EQ(member->weights, members.front()->weights);
    if (!damps) {
      ASSERT_TRUE(same_bits(member->after, members.front()->after));
    }
  }
}

// Any two ranks see their common groups in the same order, which tells the groups apart.
void check(const Training& training, const std::vector<std::vector<Record>>& records) {
  std::vector<std::size_t> next(records.size(), 0);
  std::size_t checked = 0;
  const auto current = [&](int rank) -> const Record* {
    const auto r = static_cast<std::size_t>(rank);
    return next[r] < records[r].size() ? &records[r][next[r]] : nullptr;
  };
  for (bool more = true; std::exchange(more, false);) {
    for (int rank = 0; rank < training.size; ++rank) {
      const Record* mine = current(rank);
      if (mine == nullptr) continue;
      ASSERT_THAT(mine->group, testing::Contains(rank));
      ASSERT_LE(mine->group.size(), static_cast<std::size_t>(training.group_size));
      const bool complete = std::ranges::all_of(mine->group, [&](int member) {
        const Record* theirs = current(member);
        return theirs != nullptr && theirs->group == mine->group;
      });
      if (!complete) continue;
      const std::vector<int> group = mine->group;
      std::vector<const Record*> members;
      for (const int member : group) members.push_back(current(member));
      check_group(training, members);
      if (testing::Test::HasFatalFailure()) return;
      for (const int member : group) ++next[static_cast<std::size_t>(member)];
      checked += group.size();
      more = true;
    }
  }
  // Every call of every rank was in exactly one of the groups so found.
  EXPECT_EQ(checked, static_cast<std::size_t>(
                         std::accumulate(training.steps.begin(), training.steps.end(), 0)));
}

class Trained : public testing::TestWithParam<Training> {};

TEST_P(Trained, KeepsTheMeanInGroupsWhoseMembersEndEqual) {
  const auto records = train(GetParam());
  for (std::size_t rank = 0; rank < records.size(); ++rank) {
    EXPECT_EQ(records[rank].size(), static_cast<std::size_t>(GetParam().steps[rank]));
  }
  check(GetParam(), records);
}

// Uneven steps: the last ones must finish without the others, in smaller groups and in the end
// alone. n = 0: nothing to average; 20000: several messages. 5 ranks in threes: groups that do not
// divide the ranks.
INSTANTIATE_TEST_SUITE_P(
    Jobs, Trained,
    testing::Values(Training{2, 2, 100, {20, 20}}, Training{4, 2, 3, {40, 40, 40, 40}},
                    Training{4, 2, 20000, {5, 6, 7, 8}}, Training{3, 3, 64, {1, 10, 30}},
                    Training{5, 3, 64, {20, 0, 7, 20, 21}}, Training{4, 4, 0, {3, 3, 3, 5}},
                    Training{8, 2, 1, {9, 9, 9, 9, 9, 9, 9, 9}}, Training{1, 2, 10, {5}}));

// The same where each says before its step when it will be ready.
INSTANTIATE_TEST_SUITE_P(
    Announced, Trained,
    testing::Values(Training{4, 2, 100, {40, 40, 40, 40}, {}, true},
                    Training{5, 3, 3000, {20, 0, 7, 20, 21}, {}, true},
                    Training{4, 4, 7, {9, 9, 9, 9}, {.rule = WeightRule::kHinge}, true}));

// Invariants 1 to 4 with staleness. 7 elements: fewer than two slices for each member.
INSTANTIATE_TEST_SUITE_P(
    Weightings, Trained,
    testing::Values(
        Training{5, 3, 64, {9, 9, 9, 9, 9}, {.rule = WeightRule::kExponential, .lambda = 0.5}},
        Training{5, 3, 7, {9, 9, 9, 9, 9}, {.rule = WeightRule::kPolynomial}},
        Training{4, 2, 64, {9, 9, 9, 9}, {.rule = WeightRule::kHinge, .slope = 2, .slack = 1}},
        Training{4, 4, 3000, {9, 9, 9, 9}, {.rule = WeightRule::kPublished}},
        Training{5, 3, 3000, {9, 3, 9, 1, 9}, {.rule = WeightRule::kExponential, .damped = true}},
        Training{4, 4, 7, {9, 9, 9, 9}, {.rule = WeightRule::kHinge, .slack = 1, .damped = true}},
        Training{4, 4, 0, {2, 2, 2, 2}, {.rule = WeightRule::kPolynomial, .damped = true}}));

// I5: ranks that are in no group are touched by none, as the bits of their models show.
TEST(PartialReduce, Invariant5LeavesNonMembersAlone) {
  std::atomic<int> averaging{2};
  run(3, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<float> model(1000, static_cast<float>(comm.rank()) + 0.1f);
    if (comm.rank() == 2) {
      const std::vector<float> before = model;
      for (int seen = averaging; seen > 0; seen = averaging) averaging.wait(seen);
      EXPECT_EQ(std::memcmp(model.data(), before.data(), 4 * model.size()), 0);
      return;
    }
    for (int step = 0; step < 20; ++step) {
      EXPECT_THAT(reducer.average(model, step).group, ElementsAre(0, 1));
    }
    --averaging;
    averaging.notify_all();
  });
}

// One that is not ready when it said, and one that takes it back, hold nobody up.
TEST(PartialReduce, WaitsForNoneThatAnnouncedAndDoesNotCome) {
  std::atomic<int> stepping{2};
  run(4, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<double> model(100, comm.rank());
    if (comm.rank() >= 2) {
      reducer.announce(0, seconds(0.001));
      if (comm.rank() == 3) reducer.cancel_announcement();
      stepping.wait(2);
      if (comm.rank() == 2) {
        EXPECT_THAT(reducer.average(model, 0).group, testing::Contains(2));
      }
      return;
    }
    for (int step = 0; step < 30; ++step) {
      reducer.announce(step);
      reducer.average(model, step);
    }
    --stepping;
    stepping.notify_all();
  });
}

// Adapted P and groups of a range of sizes, from end to end. A rank may be so late that it is alone
// in all steps, as the others are at their ends, but not all of them.
TEST(PartialReduce, AdaptsTheSizeOfGroups) {
  run(5, [](Communicator& comm, LocalControl&) {
    for (const PartialOptions& options :
         {PartialOptions{.group_size = 0}, PartialOptions{.group_size = 2, .largest_group = 3}}) {
      PartialReducer reducer(comm, options);
      std::vector<double> model(100, comm.rank());
      std::vector<std::int64_t> largest{0};
      for (int step = 0; step < 60; ++step) {
        const std::size_t size = reducer.average(model, step).group.size();
        largest[0] = std::max(largest[0], static_cast<std::int64_t>(size));
      }
      reducer.leave();
      comm.all_reduce(largest, ReduceOp::kMax).wait();
      EXPECT_GE(largest[0], 2);
      EXPECT_LE(largest[0], options.group_size == 0 ? 5 : 3);
    }
  });
}

// A model with a NaN counts nothing, and its rank gets the average of the others.
TEST(PartialReduce, HealsAModelThatIsNoNumber) {
  run(3, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<float> model(1000, static_cast<float>(comm.rank()));
    if (comm.rank() == 0) model[777] = std::nanf("");
    const PartialResult result = reducer.average(model, 0);
    EXPECT_THAT(result.group, ElementsAre(0, 1, 2));
    EXPECT_THAT(result.weights, ElementsAre(0, 0.5, 0.5));
    EXPECT_EQ(result.was_not_finite, comm.rank() == 0);
    EXPECT_THAT(model, Each(1.5f));
    EXPECT_FALSE(reducer.average(model, 1).was_not_finite);
  });
}

TEST(PartialReduce, TellsAModelThatIsNoNumberToTheOnlyRank) {
  run(1, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {});
    std::vector<float> model = {1, std::nanf("")};
    const PartialResult result = reducer.average(model, 0);
    EXPECT_TRUE(result.was_not_finite && result.solo());
    EXPECT_EQ(model[0], 1);
    model[1] = 2;
    EXPECT_FALSE(reducer.average(model, 1).was_not_finite);
  });
}

TEST(PartialReduce, LeavesTheModelOfALoneRankAlone) {
  const auto records = train({2, 2, 100, {0, 10}});
  for (const Record& record : records[1]) {
    EXPECT_THAT(record.group, ElementsAre(1));
    EXPECT_TRUE(same_bits(record.before, record.after));
  }
}

// Invariant 9, in deterministic mode as promised, and with the same algorithms otherwise.
TEST(PartialReduce, Invariant9GivesTheBitsOfAllReduceWhenAllTakePart) {
  for (const bool deterministic : {true, false}) {
    // Lengths on both sides of where all_reduce changes its algorithm.
    run(4, [&](Communicator& comm, LocalControl&) {
      PartialReducer reducer(comm, {.group_size = 4, .deterministic = deterministic});
      for (const std::size_t n : {std::size_t{1}, std::size_t{1001}, std::size_t{100'003}}) {
        std::vector<float> partial(n);
        for (std::size_t i = 0; i < n; ++i) {
          partial[i] = 1.0f / static_cast<float>(i + 3 * static_cast<std::size_t>(comm.rank()) + 1);
        }
        std::vector<float> all = partial;
        EXPECT_THAT(reducer.average(partial, 0).group, ElementsAre(0, 1, 2, 3));
        comm.all_reduce(all, ReduceOp::kAverage, {.deterministic = deterministic}).wait();
        EXPECT_EQ(std::memcmp(partial.data(), all.data(), 4 * n), 0) << n;
      }
    });
  }
}

TEST(PartialReduce, RunsOverTheControllersSocket) {
  const Training training{4, 2, 100, {30, 30, 30, 10}};
  const ControllerServer server({.size = 4, .token = "t"});
  const auto records = train(training, [&](int rank) {
    Options options;
    options.rank = rank;
    options.size = 4;
    options.controller = server.address();
    options.token = "t";
    return connect_control(options, Clock::real());
  });
  check(training, records);
}

// Bytes in use, of what malloc gave. Sanitizers have their own malloc, and this is 0 under them.
std::size_t bytes_in_use() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;  // small blocks and large ones
}

// What all have and have used up. Processor time does not count what the machine did besides.
struct Usage {
  std::size_t bytes = bytes_in_use();
  std::ptrdiff_t files = open_files();
  double processor_seconds = static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
};

TEST(PartialReduce, Invariant13AndPartialScenario11DoesNotGrowOverAHundredThousandGroups) {
  const int tenth = bytes_in_use() == 0 ? 50 : 5000;  // of the calls of 4 ranks in pairs
  std::vector<Usage> after;                           // each tenth
  run(4, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<float> model(16, static_cast<float>(comm.rank()));
    for (int step = 0; step < 10 * tenth; ++step) {
      reducer.average(model, step);
      if (comm.rank() == 0 && (step + 1) % tenth == 0) after.emplace_back();
    }
  });
  ASSERT_EQ(after.size(), 10u);
  const Usage &early = after[0], &late = after[8];   // in the last tenth, some end
  EXPECT_LT(late.bytes, early.bytes + (256 << 10));  // 3 bytes a group would show
  EXPECT_EQ(late.files, early.files);
  // The least of three tenths, as ranks that wait look again the longer, the more others compute.
  const auto least = [&](std::size_t from) {
    double result = std::numeric_limits<double>::max();
    for (std::size_t i = from; i < from + 3; ++i) {
      result = std::min(result, after[i + 1].processor_seconds - after[i].processor_seconds);
    }
    return result;
  };
  const double first = least(0), last = least(5);
  EXPECT_LT(last, 2 * first + 0.05);
  std::printf("a group after 10,000: %.1f us, after 70,000: %.1f us\n", first * 1e6 / (2 * tenth),
              last * 1e6 / (2 * tenth));
}

}  // namespace
}  // namespace motley::test
