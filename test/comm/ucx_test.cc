// Shows what is particular to UCX: headers written byte by byte, and processes that find each
// other over TCP, leave, and die.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "comm/transport/seal.h"
#include "comm/transport/ucx_header.h"
#include "comm/transport/ucx_worker.h"
#include "test/support/errors.h"
#include "test/support/forked_ranks.h"
#include "test/support/killed_peer.h"
#include "test/support/transports.h"

namespace motley::test {
namespace {

using Kind = UcxHeader::Kind;

UcxHeader some_header() {
  return {.seal = 0x1718191a1b1c1d1e,
          .session = 0x0102030405060708,
          .sequence = 0xfffefdfcfbfaf9f8,
          .from = 0xa1a2a3a4,
          .kind = Kind::kCredit,
          .tag = {.call = {.group = {.id = GroupTag::kControllerBit | 7, .epoch = 3, .attempt = 2},
                           .number = 0x11223344},
                  .piece = 5,
                  .fingerprint = {.count = 1'000'003,
                                  .kind = CallKind::kBroadcast,
                                  .dtype = DType::kBFloat16,
                                  .op = ReduceOp::kMax,
                                  .algorithm = 9,
                                  .root = 6,
                                  .pieces = 4}}};
}

TEST(UcxHeader, ReadsWhatItWrote) {
  const UcxHeader header = some_header();
  std::array<std::byte, UcxHeader::kBytes> bytes;
  header.write(bytes.data());
  EXPECT_EQ(bytes[0], std::byte{0x1e}) << "little-endian";
  const auto read = UcxHeader::read(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->seal, header.seal);
  EXPECT_EQ(read->session, header.session);
  EXPECT_EQ(read->sequence, header.sequence);
  EXPECT_EQ(read->from, header.from);
  EXPECT_EQ(read->kind, header.kind);
  EXPECT_EQ(read->tag.call, header.tag.call);
  EXPECT_EQ(read->tag.piece, header.tag.piece);
  EXPECT_EQ(read->tag.fingerprint, header.tag.fingerprint);
}

// Every value of every byte: none may be read as an enumerator that does not exist.
TEST(UcxHeader, RefusesWhatNoHeaderSays) {
  std::array<std::byte, UcxHeader::kBytes> bytes;
  some_header().write(bytes.data());
  EXPECT_FALSE(UcxHeader::read(ConstBytes(bytes).first(UcxHeader::kBytes - 1)));
  EXPECT_FALSE(UcxHeader::read({}));
  int refused = 0;
  for (std::byte& byte : bytes) {
    const std::byte before = byte;
    for (int value = 0; value < 256; ++value) {
      byte = static_cast<std::byte>(value);
      const auto read = UcxHeader::read(bytes);
      if (!read) {
        ++refused;
        continue;
      }
      EXPECT_LE(read->kind, Kind::kBye);
      EXPECT_STRNE(name(read->tag.fingerprint.kind), "unknown");
      EXPECT_STRNE(name(read->tag.fingerprint.dtype), "unknown");
      EXPECT_STRNE(name(read->tag.fingerprint.op), "unknown");
    }
    byte = before;
  }
  EXPECT_EQ(refused, (256 - 7) + (256 - kCallKinds) + (256 - 8) + (256 - 6)) << "four enumerations";
}

// All of it once with eager messages, once with rendezvous for each that has a byte.
class Ucx : public testing::TestWithParam<std::int64_t> {
 protected:
  static std::unique_ptr<Transport> join(int rank, int size, Store& store,
                                         Duration time = kPatience, const std::string& token = {}) {
    Options options;
    options.token = token;
    options.ucx_rendezvous = GetParam();
    return make_ucx_transport({.rank = rank,
                               .size = size,
                               .store = store,
                               .name = "test",
                               .clock = Clock::real(),
                               .options = options,
                               .deadline = Clock::real().now() + time});
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Ucx, testing::Values(-1, 0),
                         [](const auto& way) { return way.param < 0 ? "Eager" : "Rendezvous"; });

// By rendezvous a send that waits to be fetched looks like one without room.
class UcxEager : public Ucx {};
INSTANTIATE_TEST_SUITE_P(Eager, UcxEager, testing::Values(-1));

// Where it knows none: Debian's UCX has no CUDA, and here is no device.
TEST(UcxDevice, ThatIsWantedWhereUcxKnowsNoneIsRefused) {
  MemoryStore store;
  Options options;
  options.ucx_device = "direct";
  test::expect_error(ErrorCode::kUnavailable, {"rank 0 of 2", "MOTLEY_UCX_DEVICE", "CUDA"}, [&] {
    return make_ucx_transport({.rank = 0,
                               .size = 2,
                               .store = store,
                               .name = "test",
                               .clock = Clock::real(),
                               .options = options,
                               .deadline = Clock::real().now() + seconds(5)});
  });
}

TEST_P(Ucx, NamesTheRanksThatDoNotCome) {
  MemoryStore store;
  try {
    join(1, 3, store, seconds(0.05));
    FAIL() << "ranks 0 and 2 do not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.ranks(), testing::ElementsAre(0, 2));
  }
}

// Dies where its owner would learn of the other ranks.
class FatalStore final : public Store {
 public:
  explicit FatalStore(Store& store) : store_(store) {}
  void set(std::string_view key, std::string_view value) override { store_.set(key, value); }
  std::string get(std::string_view, TimePoint) override {
    raise(SIGKILL);
    return {};
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    return store_.add(key, amount);
  }

 private:
  Store& store_;
};

// Scenario 13: a peer that listens, and so can be connected to, dies before it has said a word.
TEST_P(Ucx, Scenario13ConnectingToAPeerThatDiedBeforeTheHandshakeEnds) {
  ForkedRanks ranks(2, [](int rank, Store& store) {
    if (rank == 1) {
      FatalStore fatal(store);
      join(rank, 2, fatal);
      return false;
    }
    const TimePoint start = Clock::real().now();
    try {
      join(rank, 2, store, seconds(2));
      return false;
    } catch (const Error& error) {
      const bool named = error.ranks() == std::vector<int>{1};
      const bool known =
          error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
      return named && known && Clock::real().now() - start < seconds(10);
    }
  });
  EXPECT_TRUE(ranks.succeeded(0));
  EXPECT_FALSE(ranks.succeeded(1));
}

// The last message of a rank that leaves at once still arrives; afterwards its absence is noticed.
TEST_P(Ucx, DeliversWhatWasSentBeforeLeaving) {
  ForkedRanks ranks(2, [](int rank, Store& store) {
    auto transport = join(rank, 2, store);
    const std::size_t max = transport->max_message_bytes();
    NotingSink sink;
    if (rank == 1) {
      std::size_t offered = 0;
      for (std::uint32_t i = 0; i < 30; ++i) {
        if (!transport->post_send(0, tag_of(1), pattern(max, i), sink, i)) ++offered;
      }
      if (GetParam() < 0) return offered == 0;
      return run_until(*transport, [&] { return sink.sends.size() == offered; });
    }
    for (std::uint32_t i = 0; i < 31; ++i) transport->post_recv(1, tag_of(1), sink, i);
    const auto done = [&] { return sink.receives.size() == 30 && sink.failures.size() == 1; };
    if (!run_until(*transport, done)) return false;
    for (const auto& message : sink.receives) {
      if (message.data != pattern(max, message.cookie)) return false;
    }
    return sink.failures[0].code == ErrorCode::kPeerLost &&
           sink.failures[0].text.find("left") != std::string::npos;
  });
  EXPECT_TRUE(ranks.succeeded(1));
  EXPECT_TRUE(ranks.succeeded(0));
}

// Rank 1 hears that rank 2 is dead and leaves: what rank 0 expects of rank 1 fails for rank 2's
// sake.
TEST_P(Ucx, BlamesTheRankForWhoseLossAPeerLeft) {
  ForkedRanks ranks(3, [](int rank, Store& store) {
    auto transport = join(rank, 3, store);
    NotingSink sink;
    store.set(fmt::format("joined/{}", rank), "yes");
    for (int other = 0; other < 3; ++other) {
      store.get(fmt::format("joined/{}", other), Clock::real().now() + kPatience);
    }
    if (rank == 1) {
      transport->report_lost(2, "its host is on fire");
      return run_until(*transport, [&] { return transport->poll(); });
    }
    transport->post_recv(rank == 0 ? 1 : 0, tag_of(1), sink, 0);
    if (rank == 2) return run_until(*transport, [&] { return sink.receives.size() == 1; });
    const bool failed = run_until(*transport, [&] { return sink.failures.size() == 1; });
    transport->post_send(2, tag_of(1), {}, sink, 1);
    return failed && sink.failures[0].code == ErrorCode::kPeerLost &&
           sink.failures[0].ranks == std::vector<int>{2};
  });
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank;
}

// Rank 1 is killed while it sends to rank 0 as fast as it can and is being sent to. Rank 0 learns
// it from UCX, or at the latest from report_lost(), and goes on with rank 2.
TEST_P(Ucx, SurvivesAKilledPeer) {
  expect_to_outlive_rank_1([](int rank, Store& store) { return join(rank, 3, store); }, 100);
}

// A stranger knows where rank 0 is and its session, but not the token. Whatever it sends is counted
// and changes nothing: the message of rank 1, with the same number as the stranger's, arrives.
TEST_P(Ucx, RefusesWhoDoesNotHoldTheToken) {
  MemoryStore store;
  std::unique_ptr<Transport> rank0;
  std::thread joining([&] { rank0 = join(0, 2, store, kPatience, "the token"); });
  const auto rank1 = join(1, 2, store, kPatience, "the token");
  joining.join();
  const std::string address = store.get("test/ucx/address/0", Clock::real().now());
  UcxWorker stranger({.message = {}, .offer = {}, .broken = {}}, {});
  stranger.connect(0, address.substr(17));
  UcxHeader header{.session = std::stoull(address.substr(0, 16), nullptr, 16), .from = 1};
  std::uint64_t sent = 0;
  const auto send = [&](const UcxHeader& forged) {
    std::array<std::byte, UcxHeader::kBytes> bytes;
    forged.write(bytes.data());
    stranger.send(0, bytes, pattern(100, 7));
    stranger.offer(0, bytes, pattern(100, 7));
    sent += 2;
  };
  for (const char* token : {"", "another", "the token "}) {
    header.seal = Sealer(token).seal(header.session, 1);
    for (const Kind kind : {Kind::kData, Kind::kCredit, Kind::kBye, Kind::kHello}) {
      header.kind = kind;
      send(header);
    }
  }
  header.seal = Sealer("the token").seal(header.session, 0);  // of another sender
  send(header);
  header.from = 2;  // nobody
  send(header);
  header.from = ~0u;
  send(header);
  stranger.send(0, pattern(10, 1), {});
  ++sent;

  NotingSink in, out;
  const TimePoint deadline = Clock::real().now() + kPatience;
  while (rank0->refused() < sent && Clock::real().now() < deadline) {
    stranger.progress();
    rank0->poll();
  }
  EXPECT_EQ(rank0->refused(), sent);
  EXPECT_EQ(rank1->refused(), 0u);
  rank0->post_recv(1, tag_of(3), in, 5);
  rank1->post_send(0, tag_of(3), pattern(100, 3), out, 0);
  const auto arrived = [&] { return rank1->poll(), !in.receives.empty(); };
  ASSERT_TRUE(run_until(*rank0, arrived));
  EXPECT_EQ(in.receives[0].data, pattern(100, 3));
}

// How many messages are taken that the receiver does not take: as many as fit into the window.
TEST_P(UcxEager, KeepsTheWindowThatTheLinkWants) {
  MemoryStore store;
  std::unique_ptr<Transport> rank0;
  std::thread joining([&] { rank0 = join(0, 2, store); });
  const auto rank1 = join(1, 2, store);
  joining.join();
  const auto data = pattern(rank0->max_message_bytes(), 1);
  const auto room = [&](std::uint32_t call) {
    NotingSink out, in;
    std::size_t taken = 0;
    while (taken < 4096 && rank0->post_send(1, tag_of(call), data, out, 0)) ++taken;
    for (std::size_t i = 0; i <= taken; ++i) rank1->post_recv(0, tag_of(call), in, 0);
    const auto arrived = [&] { return rank0->poll(), in.receives.size() == taken + 1; };
    EXPECT_TRUE(run_until(*rank1, arrived));
    rank1->post_send(0, tag_of(call), {}, out, 1);  // after what it told of the window
    rank0->post_recv(1, tag_of(call), out, 2);
    EXPECT_TRUE(run_until(*rank0, [&] { return out.receives.size() == 1; }));
    return taken;
  };
  const std::size_t cost = UcxHeader::cost(data.size());
  EXPECT_EQ(room(1), (8 << 20) / cost);
  // 1 GB/s over 8 ms there and back: 16 MB.
  rank0->use_links(Topology::uniform(2, {.latency = seconds(4e-3), .bytes_per_second = 1e9}));
  constexpr std::size_t kUntold = 256 << 10;  // taken, at most, without having been told
  const std::size_t wide = room(2);
  EXPECT_LE(wide, 16'000'000 / cost);
  EXPECT_GE(wide, (16'000'000 - kUntold) / cost - 1);
  rank0->use_links(Topology::uniform(2, {.latency = seconds(1e-6), .bytes_per_second = 1e9}));
  const std::size_t narrow = room(3);
  EXPECT_LE(narrow, (1 << 20) / cost);
  EXPECT_GE(narrow, ((1 << 20) - kUntold) / cost - 1);
}

// Destruction is bounded even if the peer is stopped and takes nothing.
TEST_P(Ucx, LeavesAPeerThatTakesNothing) {
  ForkedRanks ranks(2, [](int rank, Store& store) {
    auto transport = join(rank, 2, store);
    if (rank == 1) {
      store.get("done", Clock::real().now() + 2 * kPatience);
      return true;
    }
    const auto data = pattern(transport->max_message_bytes(), 1);
    NotingSink out;
    while (transport->post_send(1, tag_of(1), data, out, 0)) {
    }
    const TimePoint start = Clock::real().now();
    transport.reset();
    store.set("done", "yes");
    return Clock::real().now() - start < seconds(10) && out.untouched();
  });
  EXPECT_TRUE(ranks.succeeded(0));
  EXPECT_TRUE(ranks.succeeded(1));
}

}  // namespace
}  // namespace motley::test
