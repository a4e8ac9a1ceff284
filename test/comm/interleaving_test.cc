// A job of three ranks in pairs as state machines: whatever order, loss or repetition befalls its
// first messages, it ends as it must.
#include <gtest/gtest.h>

#include <unordered_set>
#include <utility>

#include "test/comm/control_world.h"

namespace motley::test {
namespace {

// Invariant 14. All that can happen to the first messages of a small job: each is delivered in any
// order, and some are lost or come twice. From every state that is reached within so many events
// the job then runs on by itself, with time that repeats what was lost, and ends as it must.
class Interleavings {
 public:
  Interleavings(int depth, int losses, int repeats)
      : depth_(depth), losses_(losses), repeats_(repeats) {}

  void explore(const World& world, const std::vector<Packet>& flight) {
    explore(world, flight, 0, losses_, repeats_);
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t ends() const { return ends_; }

 private:
  using Flight = std::vector<Packet>;

  void explore(const World& world, const Flight& flight, int depth, int losses, int repeats) {
    if (testing::Test::HasFatalFailure()) return;
    std::uint64_t key = world.hash();
    for (const Packet& packet : flight) key += hash_of(packet);  // in any order
    for (const int count : {depth, losses, repeats}) key = key * 31 + static_cast<unsigned>(count);
    if (!seen_.insert(key).second) return;
    ASSERT_EQ(world.violation(), "") << world.to_text();
    if (depth == depth_) return run_on(world, flight);
    const auto go = [&](World next, Flight rest, int losses_left, int repeats_left) {
      add_packets(next, rest);
      explore(next, rest, depth + 1, losses_left, repeats_left);
    };
    bool any = false;
    for (std::size_t i = 0; i < flight.size(); ++i) {
      any = true;
      Flight rest = flight;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
      World next = world;
      next.deliver(flight[i]);
      if (repeats > 0) go(next, flight, losses, repeats - 1);
      go(std::move(next), rest, losses, repeats);
      if (losses > 0) go(world, rest, losses - 1, repeats);
    }
    for (int rank = 0; rank < world.size(); ++rank) {
      if (!world.may_complete(rank)) continue;
      any = true;
      World next = world;
      next.complete(rank);
      go(std::move(next), flight, losses, repeats);
    }
    if (!any) run_on(world, flight);
  }

  static std::uint64_t hash_of(const Packet& packet) {
    std::uint64_t hash = 14695981039346656037u + static_cast<std::uint64_t>(packet.rank) * 2 +
                         (packet.to_controller ? 1 : 0);
    for (const std::byte byte : encode(packet.message)) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 1099511628211u;
    }
    return hash * 0x9e3779b97f4a7c15u;
  }

  static void add_packets(World& world, Flight& flight) {
    for (Packet& packet : world.take_packets()) {
      if (packet.message.type != MessageType::kHeartbeat) flight.push_back(std::move(packet));
    }
  }

  void run_on(World world, Flight flight) {
    ++ends_;
    for (int tick = 0; !world.settled() && tick < 400; ++tick) {
      world.pass_time(world.now() + seconds(0.1));
      for (Packet& packet : world.take_packets()) flight.push_back(std::move(packet));
      for (const Packet& packet : std::exchange(flight, {})) world.deliver(packet);
      for (int rank = 0; rank < world.size(); ++rank) {
        if (world.may_complete(rank)) world.complete(rank);
      }
    }
    ASSERT_TRUE(world.settled()) << world.to_text();
    ASSERT_EQ(world.violation(), "") << world.to_text();
    ASSERT_EQ(world.leftovers(), "");
    for (int rank = 0; rank < world.size(); ++rank) {
      ASSERT_EQ(world.at(rank).phase, Rank::kFinished) << world.to_text();
    }
  }

  int depth_;
  int losses_;
  int repeats_;
  std::unordered_set<std::uint64_t> seen_;
  std::size_t ends_ = 0;
};

void try_interleavings(int depth, int losses, int repeats) {
  World world(3, 2, 2, seconds(1));
  Interleavings all(depth, losses, repeats);
  all.explore(world, world.take_packets());
  testing::Test::RecordProperty("states", std::to_string(all.states()));
  EXPECT_GT(all.ends(), 100u);
}

TEST(Invariant14, NoOrderLossOrRepetitionChangesTheEnd) { try_interleavings(7, 1, 1); }
TEST(Invariant14, NoOrderOfTwelveEventsChangesTheEnd) { try_interleavings(12, 0, 0); }
TEST(Invariant14, NoLossAmongTwelveEventsChangesTheEnd) { try_interleavings(12, 1, 0); }
TEST(LongInvariant14, NoRepetitionAmongTwelveEventsChangesTheEnd) { try_interleavings(12, 0, 1); }

}  // namespace
}  // namespace motley::test
