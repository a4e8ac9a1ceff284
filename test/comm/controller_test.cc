// The controller and its clients as pure state machines: in every order of events of a small job,
// and in thousands of random ones with loss, repetition, reordering, crashes and partitions, every
// rank that lives gets exactly one outcome a step, and the members of a group end alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <unordered_set>
#include <utility>

#include "comm/control/controller_core.h"
#include "test/comm/control_world.h"

namespace motley::test {
namespace {

// Mishaps that a search may still spend.
struct Budget {
  int deaths = 0;
  int withdrawals = 0;
  int failures = 0;  // of an all-reduce for no reason that the controller knows
};

// Depth-first through every order of events. Worlds that have been through the same are visited
// once.
class Search {
 public:
  void explore(const World& world, const std::vector<Packet>& flight, Budget budget) {
    if (testing::Test::HasFatalFailure()) return;
    std::uint64_t key = world.hash();
    for (const int spent : {budget.deaths, budget.withdrawals, budget.failures}) {
      key = key * 31 + static_cast<std::uint64_t>(spent);
    }
    if (!seen_.insert(key).second) return;
    ASSERT_EQ(world.violation(), "") << world.to_text();
    bool any = false;
    for (std::size_t i = 0; i < flight.size(); ++i) {
      World next = world;
      std::vector<Packet> rest = flight;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      next.deliver(flight[i]);
      any = true;
      go(std::move(next), std::move(rest), budget);
    }
    for (int rank = 0; rank < world.size(); ++rank) any = act(world, flight, budget, rank) || any;
    if (any) return;
    ++ends_;
    ASSERT_TRUE(world.settled()) << "nothing can happen any more, but not all are served\n"
                                 << world.to_text();
    ASSERT_EQ(world.leftovers(), "");
  }
  std::size_t states() const { return seen_.size(); }
  int ends() const { return ends_; }

 private:
  void go(World&& world, std::vector<Packet>&& flight, Budget budget) {
    for (bool more = true; std::exchange(more, false);) {
      for (Packet& packet : world.take_packets()) {
        if (!matters(packet.message.type)) continue;
        // An answer concerns its receiver alone, so the search need not try it at every moment:
        // only a withdrawal may cross it.
        if (!packet.to_controller && budget.withdrawals == 0) {
          world.deliver(packet);
          more = true;
        } else {
          flight.push_back(std::move(packet));
        }
      }
    }
    explore(world, flight, budget);
  }

  // News of deaths change nothing in what a rank does here.
  static bool matters(MessageType type) {
    return type != MessageType::kLost && type != MessageType::kFenced &&
           type != MessageType::kHeartbeat;
  }

  // All that `rank` may do of itself, or may happen to it. True if something that must happen in
  // the end is among it.
  bool act(const World& world, const std::vector<Packet>& flight, Budget budget, int rank) {
    bool due = false;
    const auto branch = [&](void (World::*event)(int), Budget left) {
      World next = world;
      (next.*event)(rank);
      go(std::move(next), std::vector<Packet>(flight), left);
    };
    if (world.may_complete(rank)) {
      due = true;
      branch(&World::complete, budget);
    }
    if (world.is_broken(rank)) {
      due = true;
      branch(&World::fail, budget);
    } else if (world.may_fail(rank) && budget.failures > 0) {
      branch(&World::fail, {budget.deaths, budget.withdrawals, budget.failures - 1});
    }
    if (world.may_withdraw(rank) && budget.withdrawals > 0) {
      branch(&World::withdraw, {budget.deaths, budget.withdrawals - 1, budget.failures});
    }
    if (world.at(rank).phase == Rank::kDead && !world.controller().is_lost(rank)) {
      due = true;
      branch(&World::learn_death, budget);
    } else if (!world.at(rank).settled() && budget.deaths > 0) {
      branch(&World::die, {budget.deaths - 1, budget.withdrawals, budget.failures});
    }
    return due;
  }

  std::unordered_set<std::uint64_t> seen_;
  int ends_ = 0;
};

void explore_all(int size, int group_size, int steps, Budget budget) {
  World world(size, group_size, steps, seconds(1));
  Search search;
  search.explore(world, world.take_packets(), budget);
  testing::Test::RecordProperty("states", std::to_string(search.states()));
  EXPECT_GT(search.ends(), 0);
}

TEST(LongEveryOrderOfEvents, ServesThreeRanksInPairs) { explore_all(3, 2, 2, {}); }
TEST(EveryOrderOfEvents, SurvivesADeath) { explore_all(3, 2, 1, {.deaths = 1}); }
TEST(LongEveryOrderOfEvents, SurvivesADeathInAGroupOfThree) { explore_all(3, 3, 1, {.deaths = 1}); }
TEST(LongEveryOrderOfEvents, SurvivesTwoDeaths) { explore_all(3, 2, 1, {.deaths = 2}); }
TEST(EveryOrderOfEvents, SurvivesAFailedAverage) { explore_all(3, 2, 1, {.failures = 1}); }
TEST(LongEveryOrderOfEvents, SurvivesAFailedAverageAndADeath) {
  explore_all(3, 2, 1, {.deaths = 1, .failures = 1});
}
TEST(EveryOrderOfEvents, SurvivesAWithdrawal) { explore_all(3, 2, 1, {.withdrawals = 1}); }
TEST(EveryOrderOfEvents, SurvivesAWithdrawalAndADeath) {
  explore_all(2, 2, 1, {.deaths = 1, .withdrawals = 1});
}
TEST(EveryOrderOfEvents, ServesARankThatIsAlone) { explore_all(1, 2, 3, {}); }
TEST(EveryOrderOfEvents, ServesTwoRanks) { explore_all(2, 2, 3, {}); }

// One random job on a bad network; `seed` decides everything.
class RandomJob {
 public:
  explicit RandomJob(std::uint64_t seed)
      : random_(seed),
        world_(1 + below(7), 2 + below(4), 1 + below(6), seconds(1.5)),
        loss_(0.01 * below(25)),
        repeat_(0.01 * below(25)),
        crash_(below(2) * 2e-4 * below(10)) {}

  void run() {
    const TimePoint start = world_.now();
    for (TimePoint now = start; !world_.settled(); now += kTick) {
      ASSERT_LT(to_seconds(now - start), 300) << "not served in time\n" << world_.to_text();
      tick(now);
      ASSERT_EQ(world_.violation(), "") << world_.to_text();
    }
    // Until the lease of the last dead has ended.
    const TimePoint end = world_.now() + seconds(5);
    for (TimePoint now = world_.now(); now < end; now += kTick) tick(now);
    ASSERT_EQ(world_.leftovers(), "");
  }

 private:
  static constexpr Duration kTick = seconds(0.01);

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  bool happens(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }

  void tick(TimePoint now) {
    world_.pass_time(now);
    for (int rank = 0; rank < world_.size(); ++rank) act(rank);
    for (Packet& packet : world_.take_packets()) {
      if (cut_off(packet.rank, now) || happens(loss_)) continue;
      const int copies = happens(repeat_) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        flight_.emplace(now + seconds(0.001 * (1 + below(100))), packet);  // in any order
      }
    }
    while (!flight_.empty() && flight_.begin()->first <= now) {
      const Packet packet = flight_.begin()->second;
      flight_.erase(flight_.begin());
      world_.deliver(packet);
    }
  }

  void act(int rank) {
    if (!world_.at(rank).settled() && happens(crash_)) {
      if (happens(0.5)) {
        world_.die(rank);
      } else {
        cut_until_[rank] = world_.now() + seconds(0.5 * below(8));  // may outlast the lease, or not
      }
    }
    if (world_.may_complete(rank) && !world_.is_broken(rank) && happens(0.2)) world_.complete(rank);
    // A member that died after its last message: some may still complete.
    if (world_.may_complete(rank) && world_.is_broken(rank) && happens(0.05)) world_.complete(rank);
    const bool late = world_.now() - world_.at(rank).since > seconds(5);
    if (world_.may_fail(rank) && (late || (world_.is_broken(rank) && happens(0.1)))) {
      world_.fail(rank);
    }
    if (world_.may_withdraw(rank) && happens(crash_ / 4)) world_.withdraw(rank);
  }

  bool cut_off(int rank, TimePoint now) const {
    const auto cut = cut_until_.find(rank);
    return cut != cut_until_.end() && now < cut->second;
  }

  std::mt19937_64 random_;
  World world_;
  double loss_;
  double repeat_;
  double crash_;  // per rank and tick
  std::multimap<TimePoint, Packet> flight_;
  std::map<int, TimePoint> cut_until_;
};

TEST(RandomJobs, ServeEveryoneOnABadNetwork) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomJob(seed).run();
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace motley::test
