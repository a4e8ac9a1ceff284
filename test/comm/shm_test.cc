// Shows what is particular to shared memory: the ring between two threads on the same addresses
// (so that ThreadSanitizer sees it), and processes that find each other, and die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "comm/transport/shm_ring.h"
#include "comm/transport/shm_segment.h"
#include "test/support/forked_ranks.h"
#include "test/support/killed_peer.h"
#include "test/support/transports.h"

namespace motley::test {
namespace {

using testing::HasSubstr;

struct Memory {  // for a ring of 256-byte messages
  alignas(kCacheLine) std::byte bytes[ShmRing::bytes(256)] = {};
};

TEST(ShmRing, HoldsSlotsOfEverySizeAndRefusesMore) {
  Memory memory;
  ShmRing ring(memory.bytes, 256);
  EXPECT_FALSE(ring.has_message());
  for (int round = 0; round < 3; ++round) {  // round and round
    for (std::uint32_t i = 0; i < ShmRing::kSlots; ++i) {
      ASSERT_TRUE(ring.write(tag_of(i), pattern(i * 36, i)));  // 0 … 252 bytes
    }
    EXPECT_FALSE(ring.has_room());
    EXPECT_FALSE(ring.write(tag_of(0), {}));
    for (std::uint32_t i = 0; i < ShmRing::kSlots; ++i) {
      ASSERT_TRUE(ring.has_message());
      const ShmRing::Message message = ring.front();
      const auto expected = pattern(i * 36, i);
      EXPECT_TRUE(std::ranges::equal(message.data, expected));
      EXPECT_EQ(message.tag.call.number, i);
      if (i == 3) ring.ask_for_room();
      EXPECT_EQ(ring.pop(), i == 3) << "the writer is rung once, when it asked";
    }
    EXPECT_FALSE(ring.has_message());
  }
}

// Memory that was read a moment ago is still in the caches.
TEST(ShmRing, FillsTheSlotsThatWereGivenBackBeforeOthers) {
  Memory memory;
  ShmRing ring(memory.bytes, 256);
  ASSERT_TRUE(ring.write(tag_of(0), pattern(8, 0)));
  ASSERT_TRUE(ring.write(tag_of(1), pattern(8, 1)));
  const std::byte* const first = ring.front().data.data();
  (void)ring.pop();
  const std::byte* const second = ring.front().data.data();
  ASSERT_TRUE(ring.write(tag_of(2), pattern(8, 2)));  // beside one that is still there
  (void)ring.pop();
  EXPECT_EQ(ring.front().data.data(), first);
  ASSERT_TRUE(ring.write(tag_of(3), pattern(8, 3)));
  (void)ring.pop();
  EXPECT_EQ(ring.front().data.data(), second);
  EXPECT_TRUE(std::ranges::equal(ring.front().data, pattern(8, 3)));
  EXPECT_EQ(ring.front().tag.call.number, 3u);
}

// However writing and reading mix, and where the count of messages begins anew at 2^32.
TEST(ShmRing, KeepsMessagesApartInAnyOrderOfWritesAndReads) {
  Memory memory;
  constexpr std::uint32_t kFirst = 0xffffff00;
  auto* const control = reinterpret_cast<ShmRing::Control*>(memory.bytes);
  control->head = control->tail = kFirst;
  ShmRing ring(memory.bytes, 256);
  std::mt19937 random(7);
  std::uint32_t written = 0;
  std::uint32_t read = 0;
  while (read < 2000) {
    if (random() % 2 == 0) {
      const bool had_room = written - read < ShmRing::kSlots;
      ASSERT_EQ(ring.write(tag_of(written), pattern(written % 257, written)), had_room);
      if (had_room) ++written;
    } else if (read != written) {
      ASSERT_TRUE(ring.has_message());
      ASSERT_EQ(ring.front().tag.call.number, read);
      ASSERT_TRUE(std::ranges::equal(ring.front().data, pattern(read % 257, read)));
      (void)ring.pop();
      ++read;
    }
    ASSERT_EQ(ring.has_message(), read != written);
  }
}

TEST(ShmRing, HandsOverBetweenThreads) {
  Memory memory;
  constexpr std::uint32_t kMessages = 20000;
  std::thread writer([&] {
    ShmRing ring(memory.bytes, 256);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      const std::vector<std::uint32_t> data(i % 64, i);
      while (!ring.write(tag_of(i), std::as_bytes(std::span(data)))) std::this_thread::yield();
    }
  });
  ShmRing ring(memory.bytes, 256);
  std::uint32_t wrong = 0;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    while (!ring.has_message()) std::this_thread::yield();
    const ShmRing::Message message = ring.front();
    const std::vector<std::uint32_t> expected(i % 64, i);
    if (!std::ranges::equal(message.data, std::as_bytes(std::span(expected)))) ++wrong;
    if (message.tag.call.number != i) ++wrong;
    (void)ring.pop();
  }
  writer.join();
  EXPECT_EQ(wrong, 0u);
}

TEST(ShmSegment, IsReachedByItsAddressAndRefusesOthers) {
  const ShmSegment::Plan plan{.rank = 1, .size = 3, .payload_bytes = 256, .token = "secret"};
  ShmSegment mine = ShmSegment::create(plan);
  const ShmSegment theirs = ShmSegment::open(mine.address(), plan);
  ASSERT_TRUE(theirs.ring_from(2).write(tag_of(4), pattern(256, 4)));
  ASSERT_TRUE(mine.ring_from(2).has_message());
  EXPECT_TRUE(std::ranges::equal(mine.ring_from(2).front().data, pattern(256, 4)));
  EXPECT_FALSE(mine.ring_from(0).has_message());

  const auto error = [](const std::string& address, int size, std::size_t payload,
                        std::string_view token = "secret") {
    try {
      ShmSegment::open(address,
                       {.rank = 1, .size = size, .payload_bytes = payload, .token = token});
    } catch (const Error& e) {
      return std::pair(e.code(), std::string(e.what()));
    }
    return std::pair(ErrorCode::kAborted, std::string("none"));
  };
  EXPECT_EQ(error(mine.address(), 3, 512).first, ErrorCode::kMismatch);
  EXPECT_THAT(error(mine.address(), 4, 256).second, HasSubstr("one of 3 ranks"));
  EXPECT_EQ(error(mine.address(), 3, 256, "another").first, ErrorCode::kUnavailable);
  EXPECT_THAT(error(mine.address(), 3, 256, "").second, HasSubstr("token differs"));
  EXPECT_EQ(error("nonsense", 3, 256).first, ErrorCode::kUnavailable);
  std::string elsewhere = mine.address();  // host, boot id, …
  elsewhere[elsewhere.find(' ') + 1] = elsewhere[elsewhere.find(' ') + 1] == '0' ? '1' : '0';
  EXPECT_EQ(error(elsewhere, 3, 256).first, ErrorCode::kUnavailable);
  EXPECT_THAT(error(elsewhere, 3, 256).second, HasSubstr("between hosts"));
  mine.close_descriptor();
  EXPECT_EQ(error(mine.address(), 3, 256).first, ErrorCode::kUnavailable);
}

TransportSetup setup_of(int rank, int size, Store& store, const Options& options, Duration time) {
  return {.rank = rank,
          .size = size,
          .store = store,
          .name = "test",
          .clock = Clock::real(),
          .options = options,
          .deadline = Clock::real().now() + time};
}

TEST(Shm, NamesTheRanksThatDoNotCome) {
  MemoryStore store;
  const Options options;
  try {
    make_shm_transport(setup_of(1, 3, store, options, seconds(0.02)));
    FAIL() << "ranks 0 and 2 do not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.ranks(), testing::ElementsAre(0, 2));
  }
}

// One rank cannot open what another publishes: all learn it at once, not at their deadline.
TEST(Shm, TellsAllRanksWhenOneCannotShare) {
  MemoryStore store;
  Options small, large;
  small.segment_bytes = 1000;
  large.segment_bytes = 2000;
  const TimePoint start = Clock::real().now();
  const auto join = [&](int rank, const Options& options) {
    EXPECT_THROW(make_shm_transport(setup_of(rank, 2, store, options, kPatience)), Error);
  };
  std::thread other(join, 1, large);
  join(0, small);
  other.join();
  EXPECT_LT(Clock::real().now() - start, kPatience / 2);
}

// Rank 1 is a stranger that knows where rank 0's memory is, but not the token.
TEST(Shm, RefusesAndCountsMessagesOfWhoDoesNotHoldTheToken) {
  MemoryStore store;
  Options options;
  options.token = "secret";
  const ShmSegment::Plan other{
      .rank = 1, .size = 2, .payload_bytes = options.segment_bytes, .token = "secret"};
  const ShmSegment theirs = ShmSegment::create(other);
  store.set("test/shm/address/1", theirs.address());
  store.set("test/shm/mapped/1", "");
  const TimePoint deadline = Clock::real().now() + kPatience;
  std::unique_ptr<Transport> transport;
  std::thread rank_0(
      [&] { transport = make_shm_transport(setup_of(0, 2, store, options, kPatience)); });
  ShmSegment::Plan plan = other;
  plan.rank = 0;
  const ShmSegment inbox = ShmSegment::open(store.get("test/shm/address/0", deadline), plan);
  store.set("test/shm/machine/1", "-1");  // the last that rank 0 waits for
  rank_0.join();

  NotingSink in;
  transport->post_recv(1, tag_of(1), in, 0);
  ShmRing ring = inbox.ring_from(1);
  const auto send = [&](std::uint64_t seal, std::uint32_t what) {
    ring.sign(seal);
    ASSERT_TRUE(ring.write(tag_of(1), pattern(100, what)));
    transport->poll();
  };
  send(0, 1);
  send(inbox.seal_of(1, "another"), 2);
  send(inbox.seal_of(0, "secret"), 3);  // somebody else's
  EXPECT_EQ(transport->refused(), 3u);
  EXPECT_TRUE(in.receives.empty());
  send(inbox.seal_of(1, "secret"), 4);
  EXPECT_EQ(transport->refused(), 3u);
  ASSERT_EQ(in.receives.size(), 1u);
  EXPECT_EQ(in.receives[0].data, pattern(100, 4));
}

TEST(ShmProcesses, ExchangeMessagesOfEverySize) {
  ForkedRanks ranks(3, [](int rank, Store& store) {
    const Options options;
    const auto transport = make_shm_transport(setup_of(rank, 3, store, options, kPatience));
    const std::vector<std::size_t> sizes{0, 1, 4097, transport->max_message_bytes()};
    NotingSink out, in;
    std::vector<std::vector<std::byte>> data;
    std::size_t waiting = 0;
    for (std::uint32_t i = 0; i < 40; ++i) {
      data.push_back(pattern(sizes[i % sizes.size()], 3 * i + static_cast<std::uint32_t>(rank)));
      transport->post_recv((rank + 2) % 3, tag_of(1), in, i);
    }
    for (std::uint32_t i = 0; i < 40; ++i) {
      if (!transport->post_send((rank + 1) % 3, tag_of(1), data[i], out, i)) ++waiting;
    }
    const auto done = [&] { return in.receives.size() == 40 && out.sends.size() == waiting; };
    bool good = run_until(*transport, done);
    for (std::uint32_t i = 0; good && i < 40; ++i) {
      good = in.receives[i].data ==
             pattern(sizes[i % sizes.size()], 3 * i + static_cast<std::uint32_t>((rank + 2) % 3));
    }
    return good;
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank;
}

// Rank 1 is killed while it fills rank 0's memory as fast as it can and is being sent to. Rank 0
// loses nothing but rank 1, and goes on with rank 2.
TEST(ShmProcesses, SurviveAKilledPeer) {
  const auto join = [](int rank, Store& store) {
    const Options options;
    return make_shm_transport(setup_of(rank, 3, store, options, kPatience));
  };
  expect_to_outlive_rank_1(join, 20);
}

}  // namespace
}  // namespace motley::test
