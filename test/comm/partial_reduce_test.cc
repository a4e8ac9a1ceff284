// Partial-reduce from end to end: ranks are threads over mailboxes, with a real controller between
// them. What is promised is shown for every group that forms: the mean is kept, members end equal,
// others are untouched, and whoever dies costs its group a retry.
#include "comm/partial_reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/transport/inproc.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), 8 * a.size()) == 0);
}

struct Training {
  int size;
  int group_size;
  std::size_t n;
  std::vector<int> steps;  // by rank
};

// Each rank makes its steps; a step adds to the model what depends on rank and step only.
std::vector<std::vector<Record>> train(const Training& training, const Connect& connect) {
  std::vector<std::vector<Record>> records(static_cast<std::size_t>(training.size));
  const auto body = [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    PartialReducer reducer(comm, {.group_size = training.group_size});
    std::vector<double> model(training.n, static_cast<double>(rank));
    for (int step = 0; step < training.steps[rank]; ++step) {
      for (std::size_t i = 0; i < model.size(); ++i) {
        model[i] += static_cast<double>((rank + 1) * (i % 7) + static_cast<std::size_t>(step));
      }
      Record record{.group = {}, .before = model, .after = {}};
      record.group = reducer.average(model, step).group;
      record.after = model;
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

// Members of a group hold one result, and it is the mean of what they brought. Any two ranks see
// their common groups in the same order, which tells the groups apart.
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
      for (std::size_t i = 0; i < training.n; ++i) {
        double sum = 0;
        for (const int member : group) sum += current(member)->before[i];
        ASSERT_NEAR(mine->after[i], sum / static_cast<double>(group.size()), 1e-12 * (1 + sum));
      }
      for (const int member : group) {
        ASSERT_TRUE(same_bits(current(member)->after, mine->after)) << rank << " and " << member;
      }
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

TEST(PartialReduce, LeavesTheModelOfALoneRankAlone) {
  const auto records = train({2, 2, 100, {0, 10}});
  for (const Record& record : records[1]) {
    EXPECT_THAT(record.group, ElementsAre(1));
    EXPECT_TRUE(same_bits(record.before, record.after));
  }
}

TEST(PartialReduce, GivesTheBitsOfAllReduceWhenAllTakePart) {
  // Lengths on both sides of where all_reduce changes its algorithm.
  run(4, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 4});
    for (const std::size_t n : {std::size_t{1}, std::size_t{1001}, std::size_t{100'003}}) {
      std::vector<float> partial(n);
      for (std::size_t i = 0; i < n; ++i) {
        partial[i] = 1.0f / static_cast<float>(i + 3 * static_cast<std::size_t>(comm.rank()) + 1);
      }
      std::vector<float> all = partial;
      EXPECT_THAT(reducer.average(partial, 0).group, ElementsAre(0, 1, 2, 3));
      comm.all_reduce(all, ReduceOp::kAverage).wait();
      EXPECT_EQ(std::memcmp(partial.data(), all.data(), 4 * n), 0) << n;
    }
  });
}

TEST(PartialReduce, ChecksItsArguments) {
  run(3, [](Communicator& comm, LocalControl&) {
    for (const int bad : {-1, 0, 1, 4}) {
      expect_error(ErrorCode::kInvalid, std::to_string(bad),
                   [&] { PartialReducer(comm, {.group_size = bad}); });
    }
    PartialReducer reducer(comm, {.group_size = 2});
    reducer.leave();
    std::vector<float> model(1);
    expect_error(ErrorCode::kInvalid, "leave", [&] { reducer.average(model, 0); });
  });
  InprocNetwork network(2);
  Communicator no_controller(network.transport(0), Clock::real(), {});
  expect_error(ErrorCode::kInvalid, "controller",
               [&] { PartialReducer(no_controller, {.group_size = 2}); });
  Communicator alone(InprocNetwork::single(), Clock::real(), {});
  std::vector<float> model = {0.1f};
  EXPECT_TRUE(PartialReducer(alone, {}).average(model, 0).solo());
  EXPECT_THAT(model, ElementsAre(0.1f));
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
std::size_t bytes_in_use() { return mallinfo2().uordblks; }

TEST(PartialReduce, DoesNotGrowOverTenThousandGroups) {
  constexpr int kCalls = 5000;  // of 4 ranks in pairs: 10,000 groups
  std::atomic<std::size_t> early{0}, late{0};
  run(4, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    std::vector<float> model(16, static_cast<float>(comm.rank()));
    for (int step = 0; step < kCalls; ++step) {
      reducer.average(model, step);
      if (comm.rank() == 0 && step == kCalls / 10) early = bytes_in_use();
      if (comm.rank() == 0 && step == kCalls - kCalls / 10) late = bytes_in_use();
    }
  });
  EXPECT_LT(late, early + (256 << 10));  // 32 bytes a group would show
}

}  // namespace
}  // namespace motley::test
