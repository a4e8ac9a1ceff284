// Which of several controllers serves, in virtual time and without a network: one at a time where
// they hear each other, and the last to have begun where they have not.
#include "comm/control/succession.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/client_core.h"

namespace motley {
namespace {

using testing::HasSubstr;
using State = Succession::State;

constexpr Duration kLease = seconds(1);
constexpr Duration kTick = seconds(0.01);
constexpr std::uint32_t kFirstEpoch = 3u << 16 | 77;

Message answer_in(std::uint32_t epoch, int before = 0) {
  return {.type = MessageType::kSuccession, .count = before, .number = epoch, .value = "t"};
}

// A standby and what it hears, as time goes by.
struct Standby {
  explicit Standby(std::vector<std::string> before = {"tcp://first:1"})
      : succession({.before = std::move(before), .token = "t", .lease = kLease}, now) {}

  // Answers each question with `answer`, for so long.
  void live(Duration time, const std::optional<Message>& answer) {
    for (const TimePoint end = now + time; now < end; now += kTick) {
      succession.on_time(now);
      if (!succession.take_question()) continue;
      ++questions;
      if (answer) succession.on_answer(0, *answer, now);
    }
  }
  // Until it serves, which it begins in an epoch above the others'.
  void take_over() {
    live(seconds(1), answer_in(kFirstEpoch));
    live(kLease + 2 * kTick, std::nullopt);
    ASSERT_TRUE(succession.serves());
    succession.serves_in(kOwnEpoch, 0);
  }

  static constexpr std::uint32_t kOwnEpoch = 4u << 16 | 5;
  TimePoint now{};
  int questions = 0;
  Succession succession;
};

TEST(Succession, TheFirstServesAtOnceAndAsksNobody) {
  Succession first({.before = {}, .token = "t", .lease = kLease}, TimePoint{});
  EXPECT_TRUE(first.serves());
  EXPECT_EQ(first.next_timer(), TimePoint::max());
  first.on_time(TimePoint{} + 10 * kLease);
  EXPECT_FALSE(first.take_question());
}

TEST(Succession, AStandbyDoesNotServeWhileTheFirstAnswers) {
  Standby standby;
  standby.live(100 * kLease, answer_in(kFirstEpoch));
  EXPECT_EQ(standby.succession.state(), State::kStandingBy);
  EXPECT_NEAR(standby.questions, 800, 40) << "eight a lease";
  EXPECT_EQ(standby.succession.last_epoch(), kFirstEpoch);
}

TEST(Succession, AStandbyServesALeaseAfterTheLastAnswer) {
  Standby standby;
  standby.live(seconds(1), answer_in(kFirstEpoch));
  standby.live(kLease * 3 / 4, std::nullopt);
  EXPECT_FALSE(standby.succession.serves());
  standby.live(kLease / 2, std::nullopt);
  EXPECT_TRUE(standby.succession.serves());
}

// It would know nothing of a job, and the first may be about to start.
TEST(Succession, AStandbyThatHasNeverHeardTheFirstDoesNotServe) {
  Standby standby;
  standby.live(100 * kLease, std::nullopt);
  EXPECT_EQ(standby.succession.state(), State::kLooking);
}

TEST(Succession, AStandbyThatWasHeldUpDoesNotTakeItForTheFirstsSilence) {
  Standby standby;
  standby.live(seconds(1), answer_in(kFirstEpoch));
  standby.now += 5 * kLease;  // it was stopped
  standby.live(kLease / 4, std::nullopt);
  EXPECT_FALSE(standby.succession.serves());
  standby.live(kLease, std::nullopt);
  EXPECT_TRUE(standby.succession.serves());
}

TEST(Succession, TwoThatStandByForEachOtherFail) {
  Standby one, other;
  other.succession.on_answer(0, one.succession.on_question(answer_in(0, 1)), other.now);
  ASSERT_TRUE(other.succession.failure());
  EXPECT_EQ(other.succession.failure()->code, ErrorCode::kInvalid);
  EXPECT_THAT(other.succession.failure()->why, HasSubstr("tcp://first:1"));
  EXPECT_FALSE(other.succession.serves());
}

TEST(Succession, TheSecondStandbyWaitsForTheFirstStandby) {
  Standby second({"tcp://first:1", "tcp://standby:1"});
  second.live(seconds(1), answer_in(kFirstEpoch));
  second.live(10 * kLease, answer_in(0, 1));  // the first is gone, the standby not yet serving
  EXPECT_FALSE(second.succession.serves());
  EXPECT_FALSE(second.succession.failure());
  second.live(2 * kLease, std::nullopt);
  EXPECT_TRUE(second.succession.serves());
}

TEST(Succession, AFirstThatWasStoppedLearnsThatItsTimeIsOver) {
  Succession first({.before = {}, .token = "t", .lease = kLease}, TimePoint{});
  first.serves_in(kFirstEpoch, 8);
  first.on_question(answer_in(0, 1));  // a standby that stands by
  first.on_question(answer_in(kFirstEpoch + 1, 1));
  EXPECT_TRUE(first.serves()) << "epochs begun in ignorance of each other decide nothing";
  Message stranger = answer_in(9u << 16, 1);
  stranger.value = "x";
  EXPECT_EQ(first.on_question(stranger).type, MessageType::kRefused);
  EXPECT_TRUE(first.serves());
  first.on_question(answer_in(Standby::kOwnEpoch, 1));
  EXPECT_EQ(first.state(), State::kEnded);
  EXPECT_EQ(first.failure()->code, ErrorCode::kAborted);
}

TEST(Succession, AStandbyStepsBackWhereNoRankHasComeToIt) {
  Standby standby;
  standby.take_over();
  standby.live(seconds(0.5), answer_in(kFirstEpoch));
  EXPECT_EQ(standby.succession.state(), State::kStandingBy);
}

TEST(Succession, AStandbyWithRanksKeepsThemUntilALaterEpochIsServed) {
  Standby standby;
  standby.take_over();
  standby.succession.serves_in(Standby::kOwnEpoch, 3);
  standby.live(seconds(5), answer_in(kFirstEpoch));
  EXPECT_TRUE(standby.succession.serves());
  standby.live(seconds(0.5), answer_in(6u << 16 | 1));
  EXPECT_EQ(standby.succession.state(), State::kStandingBy);
  EXPECT_EQ(standby.succession.last_epoch(), 6u << 16 | 1);
}

// It cannot know whether the one that told it is among those that it stands by for.
TEST(Succession, AStandbyThatIsSupersededLooksAgain) {
  Standby standby;
  standby.take_over();
  standby.succession.on_question(answer_in(7u << 16, 2));
  EXPECT_EQ(standby.succession.state(), State::kLooking);
  standby.live(5 * kLease, std::nullopt);
  EXPECT_FALSE(standby.succession.serves());
  standby.live(kLease, answer_in(7u << 16));
  EXPECT_EQ(standby.succession.state(), State::kStandingBy);
}

TEST(Succession, ARefusedStandbySaysWhy) {
  Standby standby;
  standby.live(seconds(0.1), Message{.type = MessageType::kRefused, .value = "wrong token"});
  ASSERT_TRUE(standby.succession.failure());
  EXPECT_THAT(standby.succession.failure()->why, HasSubstr("wrong token"));
}

// A rank and the controllers that it tries, with a heartbeat of 0.1 s.
struct Seeker {
  explicit Seeker(int controllers)
      : client({.rank = 0, .size = 2, .heartbeat = seconds(0.1), .controllers = controllers}, now) {
  }
  void welcome(std::uint32_t epoch) {
    client.on_message(
        {.type = MessageType::kWelcome, .epoch = epoch, .rank = 0, .number = kLease.count()}, now);
  }
  // How often it goes on to another, hearing nothing.
  int moves_in(Duration time) {
    int moves = 0;
    for (const TimePoint end = now + time; now < end; now += kTick) {
      client.on_time(now);
      if (client.take_move()) ++moves;
      client.take_output();
    }
    return moves;
  }

  TimePoint now{};
  ClientCore client;
};

TEST(Succession, ARankTriesControllersInTurnUntilOneAdmitsIt) {
  Seeker seeker(2);
  EXPECT_NEAR(seeker.moves_in(seconds(3)), 10, 1) << "three heartbeats each";
  seeker.welcome(kFirstEpoch);
  EXPECT_EQ(seeker.moves_in(kLease - kTick), 0);
  EXPECT_GE(seeker.moves_in(kLease), 2) << "silent for a lease";
  seeker.welcome(Standby::kOwnEpoch);
  EXPECT_EQ(seeker.moves_in(kLease / 2), 0);
  seeker.client.connection_broken();
  EXPECT_GE(seeker.moves_in(kLease / 4), 1) << "at once";
}

TEST(Succession, ARankWithOneControllerStaysWithIt) {
  Seeker seeker(1);
  seeker.welcome(kFirstEpoch);
  seeker.client.connection_broken();
  EXPECT_EQ(seeker.moves_in(10 * kLease), 0);
}

}  // namespace
}  // namespace motley
