// Ranks that announce when they will be ready, in virtual time: the production controller and
// clients, with messages that take their time. The way to the controller and back is hidden where
// estimates are good, and what is averaged in pieces, as their groups are formed while they are
// still computed; where estimates are wrong, or a rank dies or changes its mind after it has
// announced, the others wait for it a little, and not for its lease.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "test/comm/control_world.h"
#include "test/comm/formation.h"

namespace motley::test {
namespace {

struct Job {
  int size = 8;
  int group_size = 2;
  int steps = 100;
  Duration latency = seconds(0.002);  // of a message to, or from, the controller
  Duration step = seconds(0.05);
  double jitter = 0.05;
  Duration averaging = seconds(0.006);
  Duration announced = seconds(0.02);  // so long before its end; zero: it is not
  double slow = 1;                     // times as long as the others' are the steps of rank 0
  // Averages are in pieces, which groups begin with as soon as they are known, and are to be known
  // so long before steps end; zero: they are not.
  Duration ahead{};
  // What the estimate is multiplied with.
  std::function<double(std::mt19937_64&)> error = [](std::mt19937_64&) { return 1.0; };
};

class Timed {
 public:
  explicit Timed(const Job& job, std::uint64_t seed = 1)
      : job_(job),
        random_(seed),
        world_(job.size, job.group_size, job.steps, kLease, false),
        seen_(static_cast<std::size_t>(job.size)) {}

  static constexpr Duration kLease = seconds(1.5);

  // Called when a rank has announced a step; may kill it, or make it change its mind.
  std::function<void(World&, int rank)> on_announced = [](World&, int) {};

  void run() {
    const TimePoint end = world_.now() + seconds(600);
    look();
    while (!world_.settled()) {
      const TimePoint next = events_.empty() ? TimePoint::max() : events_.begin()->first;
      const TimePoint now = std::min(next, world_.controller().next_timer());
      ASSERT_LT(now, end) << world_.to_text();
      world_.pass_time(std::max(now, world_.now()));
      if (next <= now) {
        const auto event = events_.begin()->second;
        events_.erase(events_.begin());
        event();
      }
      look();
    }
    ASSERT_EQ(world_.violation(), "") << world_.to_text();
  }
  // Of a step, in milliseconds: from its end to when all of its group had ended theirs.
  double mean_wait() const { return 1e3 * to_seconds(waited_) / static_cast<double>(averages_); }
  double longest_wait() const { return 1e3 * to_seconds(longest_); }
  // From its end to when it is averaged.
  double mean_cost() const { return 1e3 * to_seconds(cost_) / static_cast<double>(averages_); }
  int averages() const { return averages_; }
  World& world() { return world_; }

 private:
  struct Seen {
    int step = -1;  // that it was seen to begin
    TimePoint ended{};
    TimePoint together{};  // all of its group had ended theirs
    std::optional<GroupTag> told;
    std::optional<GroupTag> tag;  // of which its completion is due
    std::size_t outcomes = 0;
  };

  Seen& seen(int rank) { return seen_[static_cast<std::size_t>(rank)]; }
  void at(TimePoint when, std::function<void()> event) { events_.emplace(when, std::move(event)); }

  // Plans what follows from what has just happened.
  void look() {
    for (int rank = 0; rank < world_.size(); ++rank) look(rank);
    for (Packet& packet : world_.take_packets()) {
      at(world_.now() + job_.latency, [this, packet] { world_.deliver(packet); });
    }
  }

  void look(int rank) {
    const Rank& self = world_.at(rank);
    note_outcome(rank);
    note_group(rank);
    if (self.phase == Rank::kStepping && seen(rank).step != self.step) begin_step(rank);
    if (world_.is_told(rank)) {
      world_.fail(rank);
    } else if (world_.all_began(rank) && seen(rank).tag != self.tag) {
      seen(rank).tag = self.tag;
      seen(rank).together = world_.now();
      const TimePoint begun = job_.ahead > Duration{} ? known_.at(self.tag) : world_.now();
      at(std::max(begun + job_.averaging, world_.now()), [this, rank] { complete(rank); });
    }
  }

  void begin_step(int rank) {
    const int step = world_.at(rank).step;
    seen(rank).step = step;
    const TimePoint ends =
        world_.now() + seconds(to_seconds(job_.step) * (rank == 0 ? job_.slow : 1) *
                               (1 + job_.jitter * (2 * unit(random_) - 1)));
    at(ends, [this, rank] {
      seen(rank).ended = world_.now();
      if (world_.at(rank).phase == Rank::kStepping) world_.end_step(rank);
    });
    if (job_.announced == Duration{}) return;
    const Duration eta = seconds(to_seconds(job_.announced) * job_.error(random_));
    at(ends - job_.announced, [this, rank, eta] {
      if (!world_.may_announce(rank)) return;
      world_.announce(rank, eta, 2 * job_.latency, job_.ahead);
      on_announced(world_, rank);
    });
  }

  // Should it still wait for the controller's word, it is looked at again when something came.
  void complete(int rank) {
    if (world_.at(rank).tag != seen(rank).tag) return;
    if (world_.may_complete(rank)) return world_.complete(rank);
    if (world_.at(rank).phase != Rank::kAveraging) return;
    at(world_.now() + seconds(1e-5), [this, rank] { complete(rank); });
  }

  void note_group(int rank) {
    const Message* reply = world_.at(rank).client.reply(Lane::kGroup);
    if (reply == nullptr || reply->type != MessageType::kGroup) return;
    if (std::exchange(seen(rank).told, reply->tag) != reply->tag) known_[reply->tag] = world_.now();
  }

  void note_outcome(int rank) {
    const auto& outcomes = world_.at(rank).outcomes;
    for (; seen(rank).outcomes < outcomes.size(); ++seen(rank).outcomes) {
      const bool averaged = outcomes[seen(rank).outcomes].kind == Outcome::kAveraged;
      const Duration wait = (averaged ? seen(rank).together : world_.now()) - seen(rank).ended;
      cost_ += world_.now() - seen(rank).ended;
      longest_ = std::max(longest_, wait);
      waited_ += wait;
      ++averages_;
    }
  }

  Job job_;
  std::mt19937_64 random_;
  World world_;
  std::multimap<TimePoint, std::function<void()>> events_;
  std::vector<Seen> seen_;
  std::map<GroupTag, TimePoint> known_;  // to all members
  Duration waited_{};
  Duration cost_{};
  Duration longest_{};
  int averages_ = 0;
};

double mean_wait(const Job& job) {
  Timed timed(job);
  timed.run();
  EXPECT_EQ(timed.averages(), job.size * job.steps);
  return timed.mean_wait();
}

void record(const std::string& name, double value) {
  testing::Test::RecordProperty(name, std::to_string(value));
}

// What is left is what the same workers wait for each other beside a controller that is no way off.
TEST(Announced, HidesTheWayToTheControllerAndBack) {
  for (const auto& [size, group_size] : {std::pair{8, 2}, {8, 4}, {6, 3}}) {
    Job job{.size = size, .group_size = group_size};
    const double announced = mean_wait(job);
    job.announced = {};
    const double asked = mean_wait(job);
    job.latency = {};
    const double near = mean_wait(job);
    const std::string name = std::to_string(size) + "_in_" + std::to_string(group_size);
    record("asked_ms_" + name, asked);
    record("announced_ms_" + name, announced);
    record("near_ms_" + name, near);
    EXPECT_GT(asked, near + 3.5) << size << " in " << group_size;  // the way takes 4 ms
    EXPECT_LT(announced, near + 1) << size << " in " << group_size;
  }
}

// A group that is formed as long before steps end as its average takes has nothing left to do then
// but to hear that nobody was left out; and its members wait for each other no longer than if it
// were formed at the end; beside a slow rank, too.
TEST(Announced, HidesAveragesInPieces) {
  for (const auto& [size, group_size] : {std::pair{8, 2}, {8, 4}, {6, 3}}) {
    for (const double slow : {1.0, 4.0}) {
      Job job{.size = size, .group_size = group_size, .averaging = seconds(0.02)};
      job.announced = seconds(0.04);
      job.slow = slow;
      Timed whole(job);
      whole.run();
      job.ahead = job.averaging;
      Timed pieces(job);
      pieces.run();
      const std::string name = std::to_string(size) + "_in_" + std::to_string(group_size) +
                               (slow > 1 ? "_one_slow" : "");
      record("whole_cost_ms_" + name, whole.mean_cost());
      record("pieces_cost_ms_" + name, pieces.mean_cost());
      record("whole_wait_ms_" + name, whole.mean_wait());
      record("pieces_wait_ms_" + name, pieces.mean_wait());
      EXPECT_EQ(pieces.averages(), size * job.steps);
      EXPECT_LT(pieces.mean_cost(), whole.mean_cost() - 16) << name;  // of 20 ms; the word takes 4
      EXPECT_LT(pieces.mean_wait(), whole.mean_wait() + 1) << name;
      EXPECT_LT(pieces.longest_wait(), whole.longest_wait() + 10) << name;
    }
  }
}

// Estimates that are off by half, by ten times, or always too short: all steps are averaged or made
// alone, and in the mean nobody waits much longer than without any estimate.
TEST(Announced, SurvivesWrongEstimates) {
  Job job;
  job.announced = {};
  const double asked = mean_wait(job);
  job.announced = seconds(0.02);
  const std::function<double(std::mt19937_64&)> errors[] = {
      [](std::mt19937_64& random) { return 0.5 + unit(random); },
      [](std::mt19937_64& random) { return unit(random) < 0.1 ? 10 : 1; },
      [](std::mt19937_64& random) { return unit(random) < 0.1 ? 0.01 : 1; },
      [](std::mt19937_64&) { return 0.1; }};
  for (const Duration ahead : {Duration{}, Duration(seconds(0.012))}) {
    job.ahead = ahead;
    for (const auto& error : errors) {
      job.error = error;
      EXPECT_LT(mean_wait(job), asked + 10);
    }
  }
}

// The group goes on without the dead one long before its lease is over.
TEST(Announced, WaitsForNoneThatDiesBeforeItIsReady) {
  for (const Duration ahead : {Duration{}, Duration(seconds(0.012))}) {
    Timed timed({.size = 6, .group_size = 3, .steps = 40, .ahead = ahead});
    timed.on_announced = [](World& world, int rank) {
      if (rank == 2 && world.at(rank).step == 20) world.die(rank);
    };
    timed.run();
    EXPECT_EQ(timed.world().at(2).phase, Rank::kDead);
    EXPECT_GT(timed.averages(), 5 * 40);
    EXPECT_LT(timed.longest_wait(), 1e3 * to_seconds(Timed::kLease) / 5);
    const auto& aborts = timed.world().controller().groups().counts().aborts;
    EXPECT_GE(aborts[static_cast<std::size_t>(AbortReason::kLate)], 1u);
  }
}

TEST(Announced, WaitsForNoneThatChangesItsMind) {
  Timed timed({.size = 6, .group_size = 3, .steps = 40});
  int changes = 0;
  timed.on_announced = [&](World& world, int rank) {
    if (rank != 2 || world.at(rank).step != 20) return;
    ++changes;
    world.withdraw(rank);
  };
  timed.run();
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(timed.world().at(2).phase, Rank::kFinished);
  EXPECT_LT(timed.longest_wait(), 100);
}

// Two that had announced were late together, and the others went on without them, of which a new
// controller has heard nothing: neither of the two may take the other's question for an answer.
TEST(Restart, LetsNoneBeginWhomOnlyOthersThatAskVouchFor) {
  World world(4, 4, 1, seconds(1), false);
  const auto talk = [&world](int speakers) {  // those below
    for (bool more = true; std::exchange(more, false);) {
      for (const Packet& packet : world.take_packets()) {
        if (packet.rank >= speakers) continue;
        world.deliver(packet);
        more = true;
      }
    }
  };
  const auto pass = [&](int speakers) {
    world.pass_time(world.now() + seconds(0.1));
    talk(speakers);
  };
  for (const int rank : {0, 1}) world.announce(rank, seconds(0.1), seconds(0.01));
  for (const int rank : {2, 3}) world.end_step(rank);
  talk(4);
  for (int tick = 0; tick < 20 && !world.is_told(2); ++tick) pass(4);
  ASSERT_TRUE(world.is_told(2));  // that the two are late
  for (const int rank : {2, 3}) world.fail(rank);
  talk(4);
  ASSERT_EQ(world.at(2).tag.attempt, 1u);
  world.restart_controller();
  for (const int rank : {0, 1}) world.end_step(rank);
  for (int tick = 0; !world.settled() && tick < 100; ++tick) {
    pass(tick < 5 ? 2 : 4);
    for (int rank = 0; rank < 4; ++rank) {
      if (world.may_complete(rank)) world.complete(rank);
      if (world.at(rank).phase == Rank::kStepping) world.end_step(rank);  // to leave
    }
  }
  EXPECT_TRUE(world.settled()) << world.to_text();
  EXPECT_EQ(world.violation(), "");
  for (const int rank : {2, 3}) {
    ASSERT_EQ(world.at(rank).outcomes.size(), 1u);
    EXPECT_EQ(world.at(rank).outcomes[0].tag.attempt, 1u);
  }
}

}  // namespace
}  // namespace motley::test
