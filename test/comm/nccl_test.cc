// Collectives of device memory over NCCL (its stand-in): every kind, type and operation gives what
// it gives on the memory of the host, in groups with and without a communicator of their own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <random>

#include "comm/call_kind.h"
#include "comm/kernel/ops.h"
#include "test/support/collective_shape.h"
#include "test/support/nccl_ranks.h"

namespace motley::test {
namespace {

using testing::Values;

// The same call on the host and on the device.
void expect_the_same(Communicator& comm, const Shape& s, const Group& group,
                     CallOptions options = {}) {
  options.group = &group;
  const auto p = static_cast<std::size_t>(group.size());
  const Part part = part_of(s, p, static_cast<std::size_t>(group.index_of(comm.rank())));
  std::vector<std::byte> host = some_elements(part.elements, s.dtype, comm.rank());
  if (reduces(s.kind) && s.op == ReduceOp::kWeightedSum) options.weight = 0.5 + comm.rank() % 4;
  const OnDevice device(host);
  start(comm, s, part, View(host.data(), part.elements, s.dtype), options).wait();
  start(comm, s, part, device.view(part.elements, s.dtype), options).wait();
  EXPECT_TRUE(device.read() == host)
      << text(s) << ", rank " << comm.rank() << " of " << p << ", root " << s.root;
}

constexpr CallKind kReducing[] = {CallKind::kAllReduce, CallKind::kReduce,
                                  CallKind::kReduceScatter};
constexpr CallKind kMoving[] = {CallKind::kAllGather, CallKind::kAllGatherV, CallKind::kBroadcast,
                                CallKind::kGather,    CallKind::kScatter,    CallKind::kAllToAll,
                                CallKind::kAllToAllV};
constexpr DType kTypes[] = {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16,
                            DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kAverage, ReduceOp::kWeightedSum};

// Every type and operation, and every kind; in place every other time. n = 0: nothing to do. 1:
// less than an element for each rank. 1,000: with the least scratch there is, several pieces. Of
// many ranks a type and operation are tried in one kind of reduction only, to save time.
void run_everything(Communicator& comm, const Group& group) {
  int calls = 0;
  const auto next = [&](Shape s) {
    s.root = calls % group.size();
    s.in_place = (++calls / 2) % 2 == 1;
    expect_the_same(comm, s, group);
  };
  for (const DType dtype : kTypes) {
    for (const ReduceOp op : kOps) {
      if (op == ReduceOp::kWeightedSum && !is_floating(dtype)) continue;
      for (const CallKind kind : kReducing) {
        if (group.size() > 2 && kind != kReducing[calls % 3]) continue;
        next({.kind = kind, .dtype = dtype, .op = op, .n = calls % 5 == 0 ? 1u : 1000u});
        if (group.size() > 2) break;
      }
    }
  }
  for (const CallKind kind : kMoving) {
    for (const std::size_t n : {0, 1, 1000, 9000}) {
      next({.kind = kind, .dtype = kTypes[calls % 8], .n = n});
    }
  }
  for (const CallKind kind : kReducing) next({.kind = kind, .n = 0});
}

class NcclRanks : public testing::TestWithParam<int> {};

Options with_scratch(std::size_t bytes, const char* mode = "stable") {
  Options options;
  options.nccl = mode;
  options.nccl_scratch = bytes;
  return options;
}

TEST_P(NcclRanks, GetWhatHostMemoryGets) {
  run_nccl_ranks(
      GetParam(),
      [](Communicator& comm) {
        const int before = nccl_use().launches;
        run_everything(comm, comm.world());
        EXPECT_GE(nccl_use().launches, before + 50);
      },
      with_scratch(64 << 10));
  EXPECT_EQ(nccl_use().made, 1);
}
// 3: no power of two; 8: more than there are cores.
INSTANTIATE_TEST_SUITE_P(Sizes, NcclRanks, Values(1, 2, 3, 4, 8));

TEST(NcclGroups, OfFewCallsGetWhatHostMemoryGetsWithoutACommunicator) {
  run_nccl_ranks(
      4,
      [](Communicator& comm) {
        for (const auto& ranks : {std::vector{3, 1}, std::vector{2, 0, 1}}) {
          for (std::uint64_t id = 1; id < 20; ++id) {
            Group group(ranks, {.id = id + 100 * ranks.size()});
            if (!group.contains(comm.rank())) continue;
            const Shape moving{.kind = kMoving[id % 7], .n = 100 * id, .in_place = id % 2 == 0};
            expect_the_same(comm, moving, group);
            for (const CallKind kind : kReducing)
              expect_the_same(
                  comm, {.kind = kind, .dtype = kTypes[id % 8], .op = kOps[id % 5], .n = 100 * id},
                  group);
          }
        }
        comm.barrier().wait();
      },
      with_scratch(64 << 10, "all"));
  EXPECT_EQ(nccl_use().made, 1);
}

// Fifty groups of any members, all under way at once in three streams: every kind and type.
TEST(NcclGroups, AtOnceNeedNoCommunicatorOfTheirOwn) {
  constexpr int kRanks = 8, kGroups = 50;
  const std::uint64_t seed = 20;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  std::vector<Group> groups;
  std::vector<Shape> shapes;
  for (int i = 0; i < kGroups; ++i) {
    std::vector<int> members(kRanks);
    std::iota(members.begin(), members.end(), 0);
    std::shuffle(members.begin(), members.end(), random);
    members.resize(2 + random() % (kRanks - 1));
    groups.emplace_back(members, GroupTag{.id = static_cast<std::uint64_t>(i + 1)});
    shapes.push_back({.kind = i % 10 < 3 ? kReducing[i % 10] : kMoving[i % 10 - 3],
                      .dtype = kTypes[random() % 8],
                      .op = kOps[random() % 5],
                      .n = random() % 900,
                      .root = static_cast<int>(random() % members.size()),
                      .in_place = random() % 2 == 0});
  }
  run_nccl_ranks(
      kRanks,
      [&](Communicator& comm) {
        const std::vector<Group> own = groups;
        const std::vector<Stream> streams(3);
        std::vector<Part> parts(kGroups);
        std::vector<std::vector<std::byte>> due(kGroups);
        std::vector<std::optional<OnDevice>> buffers(kGroups);
        std::vector<std::optional<Request>> requests(kGroups);
        const auto begin = [&](std::size_t i, View elements, const CallOptions& options) {
          return start(comm, shapes[i], parts[i], elements, options);
        };
        for (std::size_t i = 0; i < kGroups; ++i) {
          if (!own[i].contains(comm.rank())) continue;
          parts[i] = part_of(shapes[i], static_cast<std::size_t>(own[i].size()),
                             static_cast<std::size_t>(own[i].index_of(comm.rank())));
          const std::size_t n = parts[i].elements;
          due[i] = some_elements(n, shapes[i].dtype, comm.rank());
          buffers[i].emplace(due[i]);
          begin(i, View(due[i].data(), n, shapes[i].dtype), {.group = &own[i]}).wait();
        }
        for (std::size_t i = 0; i < kGroups; ++i) {
          if (!buffers[i]) continue;
          requests[i] = begin(i, buffers[i]->view(parts[i].elements, shapes[i].dtype),
                              {.group = &own[i], .stream = streams[i % 3]});
        }
        for (std::size_t i = kGroups; i-- > 0;) {
          if (!requests[i]) continue;
          requests[i]->wait();
          EXPECT_TRUE(buffers[i]->read() == due[i])
              << text(shapes[i]) << ", group " << i << ", rank " << comm.rank();
        }
      },
      with_scratch(64 << 10, "all"));
  EXPECT_EQ(nccl_use().made, 1);
}

TEST(NcclScratch, TooSmallForItsRanksIsRefused) {
  const auto join = [](Communicator& comm) { comm.use_nccl(); };
  for (const Ending& ending : endings_on_devices(5, join, with_scratch(64))) {
    EXPECT_EQ(ending.code, ErrorCode::kInvalid);
    EXPECT_THAT(ending.text, testing::HasSubstr("64 bytes of scratch are too few for 5 ranks"));
  }
}

// In mode "stable" it does not go over NCCL before; from the 17th call on it has a communicator.
TEST(NcclGroups, ThatAreUsedOftenGetACommunicator) {
  run_nccl_ranks(
      3,
      [](Communicator& comm) {
        if (comm.rank() == 1) return;
        const Group group({2, 0}, {.id = 5});
        for (int i = 0; i < 20; ++i) {
          expect_the_same(comm, {.kind = kReducing[i % 3], .n = 100}, group);
          EXPECT_EQ(nccl_use().made, i < 16 ? 1 : 2) << i;
        }
      },
      with_scratch(1 << 20));
}

std::vector<std::byte> random_floats(std::size_t count, DType dtype, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> value(-3, 3);
  dispatch(dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      std::vector<T> values;
      for (std::size_t i = 0; i < count; ++i) values.push_back(T(value(random)));
      bytes = bytes_of(values);
    }
  });
  return bytes;
}

// Values whose sums depend on the order in which they are added.
TEST(NcclDeterministic, CallsGiveTheBitsOfTheHost) {
  run_nccl_ranks(
      5,
      [](Communicator& comm) {
        const Group some({4, 0, 2}, {.id = 9});
        for (const DType dtype :
             {DType::kFloat64, DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
          for (const ReduceOp op : kOps) {
            for (const Group* group : {&comm.world(), &some}) {
              if (!group->contains(comm.rank())) continue;
              const std::size_t n = 7'001;
              std::vector<std::byte> host =
                  random_floats(n, dtype, static_cast<std::uint64_t>(comm.rank()));
              const OnDevice device(host);
              CallOptions options{.group = group, .deterministic = true};
              if (op == ReduceOp::kWeightedSum) options.weight = 0.1 * (comm.rank() + 1);
              comm.all_reduce(View(host.data(), n, dtype), op, options).wait();
              comm.all_reduce(device.view(n, dtype), op, options).wait();
              EXPECT_TRUE(device.read() == host)
                  << name(dtype) << " " << name(op) << " of " << group->size();
            }
          }
        }
      },
      with_scratch(64 << 10, "all"));
}

// More members than kernels combine at once, and than ThreadSanitizer has memory for.
TEST(NcclLong, DeterministicCallsOfManyRanksGiveTheBitsOfTheHost) {
  run_nccl_ranks(
      66,
      [](Communicator& comm) {
        const std::size_t n = 70;
        std::vector<std::byte> host =
            random_floats(n, DType::kBFloat16, static_cast<std::uint64_t>(comm.rank()));
        const OnDevice device(host);
        const CallOptions options{.deterministic = true};
        comm.all_reduce(View(host.data(), n, DType::kBFloat16), ReduceOp::kAverage, options).wait();
        comm.all_reduce(device.view(n, DType::kBFloat16), ReduceOp::kAverage, options).wait();
        EXPECT_TRUE(device.read() == host) << comm.rank();
      },
      with_scratch(256 << 10));
}

// NCCL's own minima and maxima, of which it promises nothing about NaN, are not used for floats.
TEST(NcclNan, WinsInMinimaAndMaxima) {
  run_nccl_ranks(3, [](Communicator& comm) {
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      std::vector<float> values(9, 1);
      values[static_cast<std::size_t>(comm.rank())] = std::numeric_limits<float>::quiet_NaN();
      const OnDevice device(bytes_of(values));
      comm.all_reduce(device.view(9, DType::kFloat32), op).wait();
      std::memcpy(values.data(), device.read().data(), 36);
      for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(std::isnan(values[i]), i < 3) << i;
    }
  });
}

// Nobody waits on the host between the copy to the device, the call and the copy back.
TEST(NcclStream, OrdersCallsAmongOtherWork) {
  run_nccl_ranks(4, [](Communicator& comm) {
    const std::size_t n = 1000;
    std::vector<std::int16_t> ones(n, 1), got(n, 0);  // a type that NCCL has not
    std::vector<float> more(n, 2), and_got(n, 0);
    const Stream stream;
    const DeviceBuffer a(n * 2), b(n * 4);
    motley::copy(a.view(n, DType::kInt16), ones, stream);
    motley::copy(b.view(n, DType::kFloat32), more, stream);
    Request first = comm.all_reduce(a.view(n, DType::kInt16), ReduceOp::kSum, {.stream = stream});
    Request second =
        comm.all_reduce(b.view(n, DType::kFloat32), ReduceOp::kAverage, {.stream = stream});
    motley::copy(got, a.view(n, DType::kInt16), stream);
    motley::copy(and_got, b.view(n, DType::kFloat32), stream);
    const Event copied = [&] {
      Event event;
      event.record(stream);
      return event;
    }();
    second.wait();
    first.wait();
    while (!copied.done()) std::this_thread::yield();
    EXPECT_THAT(got, testing::Each(4));
    EXPECT_THAT(and_got, testing::Each(2));
  });
}

// More than 2^31 bytes: broadcast by NCCL, and in slices among the members of another group.
TEST(NcclLong, BuffersArriveToTheirEnds) {
  const std::size_t n = (std::size_t{1} << 31) + 1'001, tail = 1'000;
  run_nccl_ranks(
      2,
      [&](Communicator& comm) {
        const Group other({1, 0}, {.id = 3});
        const DeviceBuffer buffer(n);
        const View data = buffer.view(n, DType::kInt8);
        const Stream stream;
        for (const Group* group : {&comm.world(), &other}) {
          const int root = group->rank_at(0);
          std::vector<std::int8_t> end(tail, comm.rank() == root ? 7 : 0);
          motley::copy(data.slice(n - tail, tail), ConstView(end), stream);
          comm.broadcast(data, root, {.group = group, .stream = stream}).wait();
          motley::copy(View(end), data.slice(n - tail, tail), stream);
          synchronize(stream);
          EXPECT_THAT(end, testing::Each(7));
        }
      },
      with_scratch(64 << 10, "all"));
}

}  // namespace
}  // namespace motley::test
