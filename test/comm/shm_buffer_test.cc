// Large collectives of ranks that share memory: through slots, and straight in buffers from
// Communicator::allocate; without page faults once warm; and with members that die or stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <barrier>
#include <bit>
#include <csignal>
#include <numeric>

#include "comm/algorithm/choose.h"
#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/transport/factory.h"
#include "comm/transport/shm_heap.h"
#include "comm/transport/team.h"
#include "test/support/forked_ranks.h"
#include "test/support/heap_count.h"
#include "test/support/joined.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::ForkedRanks;
using test::run_ranks_on;
using testing::Each;

// A buffer of int32 in own memory, or in shared memory.
struct Numbers {
  Numbers(Communicator& comm, std::size_t n, bool shared) : own(shared ? 0 : n) {
    if (shared) buffer = comm.allocate(n * sizeof(std::int32_t));
    values = shared ? buffer.as<std::int32_t>().first(n) : std::span(own);
  }
  View view() { return values; }

  SharedBuffer buffer;
  std::vector<std::int32_t> own;
  std::span<std::int32_t> values;
};

struct Case {
  int ranks;
  std::size_t n;
  int shared;  // ranks below this one have shared buffers
  const char* cma = "auto";
};

class ShmBuffers : public testing::TestWithParam<Case> {
 protected:
  static void run(const test::RankBody& body) {
    Options options;
    options.cma = GetParam().cma;
    run_ranks_on("shm", GetParam().ranks, body, options);
  }
};

TEST_P(ShmBuffers, AllReduceOutOfPlaceAndInPlace) {
  const auto [ranks, n, shared, cma] = GetParam();
  run([&, ranks = ranks, n = n, shared = shared](Communicator& comm) {
    Numbers in(comm, n, comm.rank() < shared), out(comm, n, comm.rank() < shared);
    const std::int32_t terms = ranks * (ranks + 1) / 2;
    for (int round = 1; round <= 3; ++round) {
      for (std::size_t i = 0; i < n; ++i) {
        in.values[i] = (comm.rank() + 1) * (round + static_cast<std::int32_t>(i % 1000));
      }
      comm.all_reduce(ConstView(in.view()), out.view(), ReduceOp::kSum).wait();
      comm.all_reduce(in.view(), ReduceOp::kSum).wait();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const std::int32_t expected = terms * (round + static_cast<std::int32_t>(i % 1000));
        wrong += out.values[i] != expected || in.values[i] != expected;
      }
      ASSERT_EQ(wrong, 0u) << "round " << round << ", rank " << comm.rank();
    }
  });
}

TEST_P(ShmBuffers, AllToAllOutOfPlaceAndInPlace) {
  const auto [ranks, n, shared, cma] = GetParam();
  const std::size_t block = n / static_cast<std::size_t>(ranks);
  const std::size_t all = block * static_cast<std::size_t>(ranks);
  run([&, ranks = ranks, shared = shared](Communicator& comm) {
    Numbers in(comm, all, comm.rank() < shared), out(comm, all, comm.rank() < shared);
    const auto value = [&](int from, int to, std::size_t i, int round) {
      return from * 100'000 + to * 10'000 + round + static_cast<std::int32_t>(i % 1000);
    };
    for (int round = 1; round <= 3; ++round) {
      for (std::size_t i = 0; i < all; ++i) {
        in.values[i] = value(comm.rank(), static_cast<int>(i / block), i % block, round);
      }
      comm.all_to_all(ConstView(in.view()), out.view()).wait();
      comm.all_to_all(ConstView(in.view()), in.view()).wait();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all; ++i) {
        const auto expected = value(static_cast<int>(i / block), comm.rank(), i % block, round);
        wrong += out.values[i] != expected || in.values[i] != expected;
      }
      ASSERT_EQ(wrong, 0u) << "round " << round << ", rank " << comm.rank() << " of " << ranks;
    }
  });
}

// Block lengths from nothing to all of `n`; symmetric, so that it may be in place too.
TEST_P(ShmBuffers, AllToAllOfUnequalBlocksOutOfPlaceAndInPlace) {
  const auto [ranks, n, shared, cma] = GetParam();
  run([&, ranks = ranks, n = n, shared = shared](Communicator& comm) {
    const int me = comm.rank();
    std::vector<std::size_t> counts;
    for (int r = 0; r < ranks; ++r) {
      counts.push_back(n * static_cast<std::size_t>(std::min(me, r)) / ranks +
                       static_cast<std::size_t>(me * r));
    }
    const auto all = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    Numbers in(comm, all, me < shared), out(comm, all, me < shared);
    const auto each = [&](auto&& body) {
      std::size_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        for (std::size_t i = 0; i < counts[static_cast<std::size_t>(r)]; ++i) body(at++, r, i);
      }
    };
    const auto value = [](int from, int to, std::size_t i) {
      return from * 100'000 + to * 10'000 + static_cast<std::int32_t>(i % 1000);
    };
    each([&](std::size_t at, int r, std::size_t i) { in.values[at] = value(me, r, i); });
    comm.all_to_all_v({in.view(), counts}, {out.view(), counts}).wait();
    comm.all_to_all_v({in.view(), counts}, {in.view(), counts}).wait();
    std::size_t wrong = 0;
    each([&](std::size_t at, int r, std::size_t i) {
      wrong += out.values[at] != value(r, me, i) || in.values[at] != value(r, me, i);
    });
    EXPECT_EQ(wrong, 0u) << "rank " << me << " of " << ranks;
  });
}

TEST_P(ShmBuffers, AllGatherOfUnequalBlocksOutOfPlaceAndInPlace) {
  const auto [ranks, n, shared, cma] = GetParam();
  run([&, ranks = ranks, n = n, shared = shared](Communicator& comm) {
    std::vector<std::size_t> counts(static_cast<std::size_t>(ranks), 1);
    counts.front() = 0;
    counts.back() = n;
    const auto me = static_cast<std::size_t>(comm.rank());
    const std::size_t all = n + static_cast<std::size_t>(ranks) - 2;
    const std::size_t first = me == 0 ? 0 : me - 1;
    Numbers in(comm, counts[me], comm.rank() < shared), out(comm, all, comm.rank() < shared);
    std::iota(in.values.begin(), in.values.end(), static_cast<std::int32_t>(first));
    const auto expect = [&] {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all; ++i) wrong += out.values[i] != static_cast<std::int32_t>(i);
      EXPECT_EQ(wrong, 0u) << "rank " << me << " of " << ranks;
    };
    comm.all_gather_v(ConstView(in.view()), {out.view(), counts}).wait();
    expect();
    for (std::size_t i = 0; i < all; ++i) {
      if (i < first || i >= first + counts[me]) out.values[i] = -1;
    }
    comm.barrier().wait();
    const auto own = out.values.subspan(first, counts[me]);
    comm.all_gather_v(ConstView(View(own)), {out.view(), counts}).wait();
    expect();
  });
}

TEST_P(ShmBuffers, Broadcast) {
  const auto [ranks, n, shared, cma] = GetParam();
  run([&, ranks = ranks, n = n, shared = shared](Communicator& comm) {
    Numbers data(comm, n, comm.rank() < shared);
    for (const int root : {0, ranks - 1}) {
      if (comm.rank() == root) std::iota(data.values.begin(), data.values.end(), root);
      comm.broadcast(data.view(), root).wait();
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < n; ++i) {
        wrong += data.values[i] != root + static_cast<std::int32_t>(i);
      }
      ASSERT_EQ(wrong, 0u) << "root " << root << ", rank " << comm.rank();
    }
  });
}

// 4,097 and 9,001: just above what is shown at once. 70,000: one piece. 1,000,003: many pieces, the
// last one ragged. 2,200,003: beyond the caches. Shared: nobody, everybody, all but the last.
// Without CMA private blocks go through slots, whatever their length.
INSTANTIATE_TEST_SUITE_P(Sizes, ShmBuffers,
                         testing::Values(Case{2, 4097, 0}, Case{2, 9001, 2}, Case{2, 1'000'003, 0},
                                         Case{2, 1'000'003, 0, "off"}, Case{2, 1'000'003, 2},
                                         Case{2, 2'200'003, 2}, Case{2, 1'000'003, 1},
                                         Case{3, 1'000'003, 1, "off"}, Case{3, 70'000, 0},
                                         Case{3, 1'000'003, 3}, Case{4, 1'000'003, 3},
                                         Case{7, 70'000, 7}, Case{8, 300'000, 0}),
                         [](const auto& param) {
                           return std::to_string(param.param.ranks) + "_ranks_" +
                                  std::to_string(param.param.n) + "_shared_" +
                                  std::to_string(param.param.shared) + "_cma_" + param.param.cma;
                         });

TEST(ShmBuffer, AreZeroAtFirstAndUsableAfterTheirCommunicator) {
  std::vector<SharedBuffer> kept(2);
  run_ranks_on("shm", 2, [&](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      SharedBuffer buffer = comm.allocate(100'000 * sizeof(float));
      ASSERT_EQ(buffer.size_bytes(), 400'000u);
      EXPECT_THAT(buffer.as<float>(), Each(0.f));
      std::fill(buffer.as<float>().begin(), buffer.as<float>().end(), 1.f);
      kept[static_cast<std::size_t>(comm.rank())] = std::move(buffer);  // gives the last one back
    }
  });
  for (const SharedBuffer& buffer : kept) EXPECT_THAT(buffer.as<float>(), Each(1.f));
}

TEST(ShmBuffer, WithoutSharedMemoryAreOrdinaryMemory) {
  run_ranks_on("inproc", 2, [](Communicator& comm) {
    const SharedBuffer buffer = comm.allocate(1000 * sizeof(float));
    std::fill(buffer.as<float>().begin(), buffer.as<float>().end(), 1.f);
    comm.all_reduce(buffer.as<float>(), ReduceOp::kSum).wait();
    EXPECT_THAT(buffer.as<float>(), Each(2.f));
  });
}

TEST(ShmHeap, GivesBlocksOutAgainAndRefusesMoreThanThereIs) {
  ShmHeap heap(ShmSegment::create({.payload_bytes = 64}, 8 << 20));
  std::byte* const a = heap.take(5000);
  std::byte* const b = heap.take(1);
  EXPECT_EQ(b - a, 8192);
  EXPECT_EQ(heap.offset_of(a, 5000), 0u);
  EXPECT_EQ(heap.offset_of(b + 4, 1), 8196u);
  EXPECT_FALSE(heap.offset_of(&*std::make_unique<std::byte>(), 1).has_value());
  heap.give_back(a, 5000);
  EXPECT_EQ(heap.take(8192), a);
  heap.recycle(a, 8192);
  heap.recycle(b, 1);
  EXPECT_EQ(heap.take(8 << 20), a) << "the pieces are one again";
  try {
    heap.take(1);
    FAIL() << "there is none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error.what(), testing::HasSubstr("8388608"));
  }
}

// The peer that still writes has the old memory, the owner a copy at the same address.
TEST(ShmHeap, DetachesABlockFromThoseWhoMapIt) {
  ShmHeap heap(ShmSegment::create({.payload_bytes = 64}, 8 << 20));
  const ShmSegment peer = ShmSegment::open(heap.segment().address(), {.payload_bytes = 64});
  std::byte* const block = heap.take(10'000);
  std::byte* const next = heap.take(100);
  block[9'999] = std::byte{1};
  ASSERT_EQ(peer.heap()[9'999], std::byte{1});
  heap.detach(block, 10'000);
  EXPECT_EQ(block[9'999], std::byte{1});
  peer.heap()[9'999] = std::byte{2};
  EXPECT_EQ(block[9'999], std::byte{1});
  EXPECT_FALSE(heap.offset_of(block, 10'000).has_value());
  EXPECT_TRUE(heap.offset_of(next, 100).has_value());
  heap.give_back(block, 10'000);
  EXPECT_NE(heap.take(10'000), block) << "never again";
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(ShmProcesses, TouchNoNewPagesOnceTheyAreWarm) {
  ForkedRanks ranks(2, [](int rank, Store& store) {
    Options options;
    options.rank = rank;
    options.size = 2;
    Communicator comm = test::joined(make_shm_transport, rank, 2, store, options);
    std::vector<std::vector<float>> data;
    for (const std::size_t n : {1, 100, 4000, 50'000, 1'000'000}) data.emplace_back(n, 1.f);
    SharedBuffer shared = comm.allocate(4'000'000);
    const auto round = [&] {
      for (auto& buffer : data) comm.all_reduce(buffer, ReduceOp::kMax).wait();
      comm.all_reduce(shared.as<float>(), ReduceOp::kMax).wait();
      comm.barrier().wait();
    };
    for (int i = 0; i < 50; ++i) round();
    const long before = page_faults();
    for (int i = 0; i < 50; ++i) round();
    const long faults = page_faults() - before;
    if (faults > 20) std::fprintf(stderr, "rank %d: %ld page faults\n", rank, faults);
    return faults <= 20;  // 300 calls; 20 leave room for what is not ours
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(ranks.succeeded(rank)) << "rank " << rank;
}

// Rank 1 comes when rank 0 has shown what it has, so its small calls are over as they begin. A
// large one waits, and takes no more for 4 MB than what notes that.
TEST(ShmTeam, TakesNothingFromTheHeapForACallLikeOneBefore) {
  std::barrier<> shown(2);
  run_ranks_on("shm", 2, [&shown](Communicator& comm) {
    const auto bytes_of_last = [&](const std::function<Request()>& call) {
      std::uint64_t bytes = 0;
      for (int i = 0; i < 8; ++i) {  // more than there are slots before they are used again
        Request early = comm.rank() == 0 ? call() : Request();
        shown.arrive_and_wait();
        if (comm.rank() == 1) {
          const test::ThreadHeapCount count;
          call().wait();
          bytes = count.bytes();
        }
        early.wait();
      }
      return bytes;
    };
    for (const std::size_t n : {2, 200, 1000, 100'000, 1'000'000}) {
      std::vector<float> in(n, 1.f), out(n);
      const std::uint64_t most = n <= 1000 ? 0 : 16 << 10;
      EXPECT_LE(bytes_of_last([&] { return comm.all_reduce(in, ReduceOp::kMax); }), most) << n;
      EXPECT_LE(bytes_of_last([&] { return comm.all_reduce(in, out, ReduceOp::kMax); }), most) << n;
      EXPECT_LE(bytes_of_last([&] { return comm.all_to_all(in, in); }), most) << n;
      EXPECT_LE(bytes_of_last([&] { return comm.all_to_all(in, out); }), most) << n;
    }
  });
}

void call(Communicator& comm, CallKind kind, std::size_t block) {
  const auto p = static_cast<std::size_t>(comm.size());
  std::vector<std::int8_t> one(block), all(p * block);
  const std::vector<std::size_t> counts(p, block);
  switch (kind) {
    case CallKind::kAllReduce:
      return comm.all_reduce(all, ReduceOp::kSum).wait();
    case CallKind::kReduceScatter:
      return comm.reduce_scatter(all, one, ReduceOp::kSum).wait();
    case CallKind::kAllGather:
      return comm.all_gather(one, all).wait();
    case CallKind::kAllGatherV:
      return comm.all_gather_v(one, {all, counts}).wait();
    case CallKind::kBroadcast:
      return comm.broadcast(all, 0).wait();
    case CallKind::kReduce:
      return comm.reduce(ConstView(View(all)), View(all), ReduceOp::kSum, 0).wait();
    case CallKind::kGather:
      return comm.gather(one, all, 0).wait();
    case CallKind::kScatter:
      return comm.scatter(all, one, 0).wait();
    case CallKind::kAllToAll:
      return comm.all_to_all(ConstView(View(all)), View(all)).wait();
    case CallKind::kAllToAllV:
      return comm.all_to_all_v({View(all), counts}, {View(all), counts}).wait();
    default:
      return comm.barrier().wait();
  }
}

// What runs is what the prices say, of every collective: the team on the topology that ranks of a
// host know, where nothing costs less; and a family where a topology says that copies, of which the
// team makes more, are dear.
TEST(ShmChoice, TheTeamIsTakenWhereItsPriceIsTheLeast) {
  const auto chosen = [](Communicator& comm, CallKind kind, std::size_t bytes) {
    Choice choice{.kind = kind,
                  .bytes = priced_bytes(kind, std::bit_ceil(bytes), comm.size()),
                  .segment_bytes = comm.options().segment_bytes};
    choice.whole = comm.engine().transport().team()->price(kind, choice.bytes, comm.topology());
    const int index = choose(choice, comm.topology());
    return index == kWhole ? "team" : algorithms_of(kind)[static_cast<std::size_t>(index)].name;
  };
  test::run_ranks_on("shm", 3, [&](Communicator& comm) {
    const Topology known({{.ranks = {0, 1, 2}, .cores = 3}}, {});
    const Topology dear({{.ranks = {0, 1, 2}, .cores = 3}}, {.copy_bytes_per_second = 1e6});
    for (const Topology* topology : {&known, &dear}) {
      comm.use_topology(*topology);
      int families = 0;
      for (int k = 0; k < kCallKinds; ++k) {
        const auto kind = static_cast<CallKind>(k);
        if (kind == CallKind::kSendRecv) continue;
        for (const std::size_t block : {std::size_t{1}, std::size_t{700}, std::size_t{100'000}}) {
          call(comm, kind, block);
          const bool none = kind == CallKind::kBarrier;
          const std::string ran = comm.recorder().last(1).back().algorithm;
          EXPECT_EQ(ran, chosen(comm, kind, none ? 0 : 3 * block)) << name(kind) << " " << block;
          families += ran == "team" ? 0 : 1;
        }
      }
      EXPECT_EQ(families > 0, topology == &dear) << families;
    }
  });
}

}  // namespace
}  // namespace motley
