// The groups that form over thousands of steps, in virtual time: nobody is isolated, nobody is left
// behind, the guard costs next to nothing, and where all are alike all average together.
#include "test/comm/formation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "comm/weights.h"

namespace motley::test {
namespace {

struct Isolation {
  Windows windows;
  double efficiency;
};

Isolation isolation(int size, int group_size, Guard guard, const StepTime& step_time) {
  Formation formation(size, {.group_size = group_size, .guard = guard}, step_time, 1);
  const FormationLog& log = formation.run(seconds(20));
  return {count_windows(log.groups, size), log.efficiency()};
}

// Two clusters of equal workers in which first come, first served keeps the same few together, and
// what the guard makes of them; waiting grows by at most 3 % of the time.
void compare(int size, int group_size, const StepTime& step_time) {
  const Isolation fifo = isolation(size, group_size, Guard::kNone, step_time);
  const Isolation guarded = isolation(size, group_size, Guard::kBridge, step_time);
  testing::Test::RecordProperty("fifo_disconnected", std::to_string(fifo.windows.share()));
  EXPECT_GT(fifo.windows.share(), 0.9);
  EXPECT_GT(guarded.windows.all, 1000);
  EXPECT_EQ(guarded.windows.disconnected, 0);
  EXPECT_GT(guarded.efficiency, fifo.efficiency - 0.03);
}

TEST(Isolation, BefallsSixInThreesInLockstepWithoutTheGuard) { compare(6, 3, alike(0)); }
TEST(Isolation, BefallsEightInPairsWithoutTheGuard) { compare(8, 2, alike(0.01)); }

struct Cluster {
  int size;
  int group_size;
  StepTime step_time;
};

std::vector<Cluster> clusters() {
  return {{6, 3, alike(0)},           {8, 2, alike(0.01)},        {8, 2, alike(0.1)},
          {8, 3, alike(0)},           {8, 4, unlike(0.01, 4, 4)}, {4, 2, unlike(0.01, 2, 3)},
          {8, 3, unlike(0.05, 1, 4)}, {8, 3, unlike(0.05, 1, 8)}, {16, 4, unlike(0.1, 8, 2)},
          {5, 4, alike(0.3)},         {64, 4, alike(0.02)},       {12, 5, unlike(0, 3, 10)}};
}

// I7: over a window in which the slowest took part three times, whoever is slow and by how much.
TEST(Invariant7, GroupsOfAWindowConnectAllWorkers) {
  for (const Cluster& c : clusters()) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      Formation formation(c.size, {.group_size = c.group_size}, c.step_time, seed);
      const Windows windows = count_windows(formation.run(seconds(5)).groups, c.size, 3);
      EXPECT_GT(windows.all, 20) << c.size << " in " << c.group_size;
      EXPECT_EQ(windows.disconnected, 0)
          << c.size << " in " << c.group_size << ", seed " << seed << ", of " << windows.all;
    }
  }
}

// I8: whoever waits is passed by a few groups at most, and no version falls far behind: a worker
// that is k times slower by about k steps for each participation that news needs to reach it.
TEST(Invariant8, NobodyIsPassedByManyGroupsOrFallsFarBehind) {
  for (const Cluster& c : clusters()) {
    Formation formation(c.size, {.group_size = c.group_size}, c.step_time, 1);
    std::vector<std::int64_t> versions(static_cast<std::size_t>(c.size));
    std::int64_t groups = 0, gap = 0, passed = 0;
    std::vector<std::int64_t> ready_at(versions.size());
    formation.arrival = [&](int rank) {
      ready_at[static_cast<std::size_t>(rank)] = groups;
      ++versions[static_cast<std::size_t>(rank)];
      return Matchmaker::Arrival{};
    };
    formation.on_group = [&](const std::vector<int>& members) {
      std::int64_t newest = 0;
      for (const int rank : members) {
        const auto r = static_cast<std::size_t>(rank);
        passed = std::max(passed, groups - ready_at[r]);
        newest = std::max(newest, versions[r]);
      }
      for (const int rank : members) versions[static_cast<std::size_t>(rank)] = newest;
      ++groups;
      const auto [least, most] = std::minmax_element(versions.begin(), versions.end());
      gap = std::max(gap, *most - *least);
    };
    formation.run(seconds(5));
    EXPECT_LE(passed, 2 * c.group_size) << c.size << " in " << c.group_size;
    EXPECT_LE(gap, 40) << c.size << " in " << c.group_size;
  }
}

// I10: groups drawn at random bring the models together by (N - P) / (N - 1) each, in the mean
// square.
TEST(Invariant10, RandomGroupsReduceTheDistanceAsTheTheorySays) {
  std::mt19937_64 random(3);
  for (const auto& [n, p] : {std::pair{3, 2}, {4, 2}, {8, 3}, {8, 5}, {12, 4}}) {
    constexpr int kTrials = 4000;
    double ratio = 0, squares = 0;
    std::vector<double> models(static_cast<std::size_t>(n));
    std::vector<std::size_t> order(models.size());
    std::iota(order.begin(), order.end(), 0);
    const auto distance2 = [&] {
      const double mean = std::accumulate(models.begin(), models.end(), 0.0) / n;
      double sum = 0;
      for (const double model : models) sum += (model - mean) * (model - mean);
      return sum;
    };
    for (int trial = 0; trial < kTrials; ++trial) {
      for (double& model : models) model = unit(random);
      const double before = distance2();
      std::shuffle(order.begin(), order.end(), random);
      const std::vector<double> w =
          weights({}, std::vector<std::int64_t>(static_cast<std::size_t>(p)));
      double average = 0;
      for (std::size_t i = 0; i < w.size(); ++i) average += w[i] * models[order[i]];
      for (std::size_t i = 0; i < w.size(); ++i) models[order[i]] = average;
      const double after = distance2() / before;
      ratio += after / kTrials;
      squares += after * after / kTrials;
    }
    const double error = std::sqrt((squares - ratio * ratio) / kTrials);
    EXPECT_NEAR(ratio, static_cast<double>(n - p) / (n - 1), 4 * error) << n << " in " << p;
  }
}

// The same for groups that the matchmaker forms of workers whose steps are as random as can be.
TEST(Invariant10, GroupsOfTheMatchmakerMixAboutAsWell) {
  constexpr int kSize = 8, kGroup = 3;
  Formation formation(
      kSize, {.group_size = kGroup},
      [](int, std::mt19937_64& random) { return seconds(-0.01 * std::log(1 - unit(random))); }, 1);
  std::vector<double> models(kSize);
  std::mt19937_64 random(4);
  const auto centre = [&] {
    const double mean = std::accumulate(models.begin(), models.end(), 0.0) / kSize;
    double sum = 0;
    for (double& model : models) {
      model -= mean;
      sum += model * model;
    }
    for (double& model : models) model /= std::sqrt(sum);
    return sum;
  };
  for (double& model : models) model = unit(random);
  centre();
  double logs = 0;
  int groups = 0;
  formation.on_group = [&](const std::vector<int>& members) {
    double sum = 0;
    for (const int rank : members) sum += models[static_cast<std::size_t>(rank)];
    for (const int rank : members) models[static_cast<std::size_t>(rank)] = sum / kGroup;
    logs += std::log(centre());
    ++groups;
  };
  formation.run(seconds(10));
  EXPECT_LT(logs / groups, std::log((kSize - kGroup) / (kSize - 1.0)));
}

// Adapted P: where all are alike all average together, as all_reduce would, with its waiting.
TEST(AdaptiveSize, DegeneratesToAllReduceWhereAllAreAlike) {
  for (const double jitter : {0.02, 0.05}) {
    Formation formation(8, {.group_size = 0}, alike(jitter), 1);
    int smaller = 0;
    formation.on_group = [&](const std::vector<int>& members) {
      smaller += members.size() < 8 ? 1 : 0;
    };
    Formation all(8, {.group_size = 8}, alike(jitter), 1);
    EXPECT_GT(formation.run(seconds(20)).efficiency(), all.run(seconds(20)).efficiency() - 0.02);
    EXPECT_EQ(formation.matchmaker().group_size(), 8);
    EXPECT_LE(smaller, 2);  // the first ones, before it is known how long steps take
  }
}

// Where one of few is slow, the others find that out in the first steps.
TEST(AdaptiveSize, WaitsForNoSlowOneOfFour) {
  Formation formation(4, {.group_size = 0}, unlike(0.05, 1, 4), 1);
  const std::vector<std::int64_t> steps = formation.run(seconds(0.5)).steps;
  EXPECT_GT(std::ranges::max(steps), 35);  // of 50 without waiting
}

// However the last one ended, and though ranks come one by one: the first is not alone for that.
TEST(AdaptiveSize, BeginsEachTrainingWithAll) {
  constexpr int kSize = 8;
  Matchmaker matchmaker(kSize);
  TimePoint now{};
  for (int training = 0; training < 3; ++training) {
    matchmaker.use({.group_size = 0});
    for (int round = 0; round < 30; ++round, now += seconds(0.01)) {
      std::size_t largest = 0;
      int groups = 0;
      for (int rank = 0; rank < kSize; ++rank) {
        if (training > 0 && round == 0) matchmaker.add(rank);
        matchmaker.ready(rank, {}, now + seconds(1e-4 * rank));
        const std::size_t size = matchmaker.next(now + seconds(1e-4 * rank)).size();
        largest = std::max(largest, size);
        groups += size > 0 ? 1 : 0;
      }
      const bool is_first = training + round == 0;  // when all train, and no step is known
      EXPECT_EQ(groups, is_first ? 2 : 1) << "round " << round << " of training " << training;
      EXPECT_EQ(largest, is_first ? 4 : kSize) << "round " << round << " of " << training;
    }
    for (int rank = 0; rank < kSize; ++rank) matchmaker.retire(rank);
  }
}

// Nobody knows who comes to a training after all have left the one before.
TEST(LaterTraining, WaitsAMomentForTheOthers) {
  Matchmaker matchmaker(4);
  for (int rank = 0; rank < 4; ++rank) matchmaker.retire(rank);
  matchmaker.use({.group_size = 2});
  const TimePoint start = TimePoint{} + seconds(0.1);
  matchmaker.add(1);
  matchmaker.ready(1, {}, start);
  EXPECT_TRUE(matchmaker.next(start).empty());
  EXPECT_EQ(matchmaker.hold_until(), start + Matchmaker::kGather);
  matchmaker.add(2);
  matchmaker.ready(2, {}, start + seconds(0.01));
  EXPECT_TRUE(matchmaker.next(start + seconds(0.01)).empty());
  EXPECT_EQ(matchmaker.next(start + seconds(0.051)), (std::vector<int>{1, 2}));
  matchmaker.ready(1, {}, start + seconds(0.06));
  matchmaker.retire(2);
  EXPECT_EQ(matchmaker.next(start + seconds(0.061)), (std::vector<int>{1})) << "at the beginning";
}

// One step in two hundred takes twice as long, as on a busy machine: the others go on without that
// worker, once, and are not split for it.
TEST(AdaptiveSize, ForgivesOneStepThatIsLate) {
  std::int64_t made = 0;
  const StepTime step_time = [&](int, std::mt19937_64& random) {
    const double late = ++made % 200 == 0 ? 1 : 0;
    return seconds(0.01 * (1 + late + 0.02 * unit(random)));
  };
  Formation formation(8, {.group_size = 0}, step_time, 1);
  formation.run(seconds(0.1));
  int all = 0, split = 0;
  formation.on_group = [&](const std::vector<int>& members) {
    all += members.size() == 8 ? 1 : 0;
    split += members.size() < 7 ? 1 : 0;
  };
  EXPECT_GT(formation.run(seconds(10)).efficiency(), 0.95);
  EXPECT_GT(all, 800);  // of a thousand rounds
  EXPECT_EQ(split, 0);
}

// One that becomes slow holds the others up once, for a tenth of a step.
TEST(AdaptiveSize, LeavesAStragglerBehindAtOnce) {
  double slowness = 1;
  const StepTime step_time = [&](int rank, std::mt19937_64& random) {
    return seconds(0.01 * (rank == 3 ? slowness : 1) * (1 + 0.02 * unit(random)));
  };
  Formation formation(8, {.group_size = 0}, step_time, 1);
  formation.run(seconds(2));
  ASSERT_EQ(formation.matchmaker().group_size(), 8);
  slowness = 4;
  formation.run(seconds(0.5));
  EXPECT_LT(formation.matchmaker().group_size(), 8);
  const std::int64_t before = formation.run(seconds(1e-6)).steps[0];
  EXPECT_GT(formation.run(seconds(2)).steps[0] - before, 150);  // of 200 without waiting
  slowness = 1;
  formation.run(seconds(2));
  EXPECT_EQ(formation.matchmaker().group_size(), 8);
}

// Models far apart make groups larger; models close together, and much waiting, make them smaller.
TEST(AdaptiveSize, FollowsTheDistanceOfModels) {
  for (const bool far : {true, false}) {
    Formation formation(12, {.group_size = 0}, unlike(0.3, 4, 2), 1);
    formation.arrival = [&](int rank) {
      Matchmaker::Arrival arrival{.moved = 1};
      arrival.sketch[0] = static_cast<float>(far ? 3 * rank : 0);
      return arrival;
    };
    formation.run(seconds(3));
    if (far) {
      EXPECT_GE(formation.matchmaker().group_size(), 6);
    } else {
      EXPECT_LE(formation.matchmaker().group_size(), 3);
    }
  }
}

TEST(AdaptiveSize, PrefersDivisorsOfTheRanks) {
  const GroupSizer sizer(100);
  EXPECT_EQ(sizer.part(8), 4);
  EXPECT_EQ(sizer.part(9), 3);
  EXPECT_EQ(sizer.part(10), 5);
  EXPECT_EQ(sizer.part(4), 2);
  EXPECT_EQ(sizer.part(3), 2);
  EXPECT_EQ(sizer.part(2), 2);
  EXPECT_EQ(sizer.part(1), 1);
}

// Groups of a range of sizes: where P does not divide the ranks, the rest need not wait for a whole
// step.
TEST(SizeRange, SavesTheRestTheirWaiting) {
  Formation fixed(8, {.group_size = 3}, alike(0.01), 1);
  Formation ranged(8, {.group_size = 3, .largest_group = 5}, alike(0.01), 1);
  const double waits = 1 - fixed.run(seconds(10)).efficiency();
  EXPECT_LT(1 - ranged.run(seconds(10)).efficiency(), waits / 2);
  EXPECT_EQ(count_windows(ranged.run(seconds(1)).groups, 8).disconnected, 0);
}

// I15: the same events give the same decisions.
TEST(Invariant15, ReplayOfTheArrivalsGivesTheSameGroups) {
  for (const int group_size : {0, 3}) {
    std::vector<std::vector<int>> groups[2];
    for (auto& each : groups) {
      Formation formation(20, {.group_size = group_size}, unlike(0.2, 5, 3), 9);
      formation.on_group = [&](const std::vector<int>& members) { each.push_back(members); };
      formation.run(seconds(3));
    }
    EXPECT_GT(groups[0].size(), 500u);
    EXPECT_EQ(groups[0], groups[1]);
  }
}

}  // namespace
}  // namespace motley::test
