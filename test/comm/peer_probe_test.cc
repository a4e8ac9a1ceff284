// Ranks on other hosts are asked whether they live, over datagrams of 127.0.0.1 and in a time that
// the test makes pass.
#include "comm/control/peer_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>

#include "comm/bootstrap/interface.h"

namespace motley {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Duration kBeat = seconds(0.1);
constexpr Duration kLease = seconds(1);

class Pair {
 public:
  Pair() {
    a.add(1, b.address());
    b.add(0, a.address());
    a.ask_awaited(awaited);
  }
  // One heartbeat passes on both sides; datagrams arrive, unless `cut`.
  std::vector<int> beat(Duration silence, bool cut = false) {
    now += kBeat;
    std::vector<int> lost = a.on_time(now, silence, kLease);
    if (cut) return lost;
    b.on_time(now, Duration(0), kLease);
    deliver(b);
    deliver(a);
    deliver(b);
    return lost;
  }
  // Over loopback a datagram has arrived when sendto() returns.
  void deliver(PeerProbe& to) const { to.receive(now); }

  std::shared_ptr<AwaitedPeers> awaited = std::make_shared<AwaitedPeers>();
  TimePoint now = Clock::real().now();
  IpAddress loopback = resolve("127.0.0.1").at(0);
  PeerProbe a{0, loopback, {}, kBeat};
  PeerProbe b{1, loopback, {}, kBeat};
};

TEST(PeerProbe, APeerThatAnswersIsAliveHoweverSilentTheController) {
  Pair pair;
  for (int i = 0; i < 100; ++i) EXPECT_THAT(pair.beat(i * kBeat), IsEmpty()) << i;
}

TEST(PeerProbe, APeerThatDoesNotAnswerForALeaseIsLostOnce) {
  Pair pair;
  for (int i = 0; i < 3; ++i) pair.beat(Duration(0));
  std::vector<int> beats;
  for (int i = 0; i < 40; ++i) {
    for (const int rank : pair.beat(i * kBeat, true)) {
      EXPECT_EQ(rank, 1);
      beats.push_back(i);
    }
  }
  // Asked from half a lease of silence on, which is beat 5; ten beats later it is lost.
  EXPECT_THAT(beats, ElementsAre(15));
}

// As long as the controller answers, its word counts of whomever we do not wait for.
TEST(PeerProbe, NobodyElseIsAskedWhileTheControllerAnswers) {
  Pair pair;
  pair.awaited->tell({7});
  for (int i = 0; i < 3; ++i) pair.beat(Duration(0));
  for (int i = 0; i < 100; ++i) {
    EXPECT_THAT(pair.beat(kLease / 4, true), IsEmpty());
    EXPECT_THAT(pair.a.unreachable(pair.now, kLease), IsEmpty());
  }
}

// The controller hears both, but they do not hear each other: after two leases, once. Not if the
// peer was awaited but for a while, nor if it answers.
TEST(PeerProbe, APeerThatIsAwaitedInVainCannotBeReached) {
  Pair pair;
  const auto beat = [&](bool cut) {
    EXPECT_THAT(pair.beat(Duration(0), cut), IsEmpty());
    return pair.a.unreachable(pair.now, kLease);
  };
  pair.awaited->tell({1});
  for (int i = 0; i < 100; ++i) EXPECT_THAT(beat(false), IsEmpty());
  for (int i = 0; i < 19; ++i) EXPECT_THAT(beat(true), IsEmpty());
  pair.awaited->tell({});
  for (int i = 0; i < 100; ++i) EXPECT_THAT(beat(true), IsEmpty());
  pair.awaited->tell({1});
  std::vector<int> beats;
  for (int i = 0; i < 60; ++i) {
    for (const int rank : beat(true)) {
      EXPECT_EQ(rank, 1);
      beats.push_back(i);
    }
  }
  EXPECT_THAT(beats, ElementsAre(20));
}

// Both are cut off from the controller as well: that rule is faster, and only one of them speaks.
TEST(PeerProbe, WhoIsSilentWithTheControllerIsReportedOnce) {
  Pair pair;
  pair.awaited->tell({1});
  for (int i = 0; i < 3; ++i) pair.beat(Duration(0));
  int reports = 0;
  for (int i = 0; i < 100; ++i) {
    reports += static_cast<int>(pair.beat(i * kBeat, true).size());
    EXPECT_THAT(pair.a.unreachable(pair.now, kLease), IsEmpty());
  }
  EXPECT_EQ(reports, 1);
}

// A firewall may let no datagrams through: that says nothing of the peer's life.
TEST(PeerProbe, APeerThatNeverAnsweredIsNotTakenForDead) {
  Pair pair;
  for (int i = 0; i < 100; ++i) EXPECT_THAT(pair.beat(i * kBeat, true), IsEmpty());
}

TEST(PeerProbe, APeerThatLeavesIsNotTakenForDead) {
  Pair pair;
  auto leaving = std::make_unique<PeerProbe>(2, pair.loopback, PortRange{}, kBeat);
  leaving->add(0, pair.a.address());
  pair.a.add(2, leaving->address());
  for (int i = 0; i < 3; ++i) {
    pair.beat(Duration(0));
    leaving->on_time(pair.now, Duration(0), kLease);
    pair.deliver(*leaving);
    pair.deliver(pair.a);
    pair.deliver(*leaving);
  }
  leaving.reset();
  for (int i = 0; i < 40; ++i) EXPECT_THAT(pair.beat(i * kBeat), IsEmpty());
}

// Knows the port and the rank, but not the key.
TEST(PeerProbe, AStrangerIsNobody) {
  Pair pair;
  PeerProbe stranger(1, pair.loopback, {}, kBeat);
  std::string address = pair.a.address();
  address.back() = address.back() == '0' ? '1' : '0';
  stranger.add(0, address);
  stranger.add(2, "nonsense");
  stranger.add(2, address.substr(0, address.size() - 2) + "zz");
  for (int i = 0; i < 100; ++i) {
    pair.now += kBeat;
    stranger.on_time(pair.now, Duration(0), kLease);
    pair.deliver(pair.a);
    EXPECT_THAT(pair.a.on_time(pair.now, i * kBeat, kLease), IsEmpty());
  }
}

}  // namespace
}  // namespace motley
