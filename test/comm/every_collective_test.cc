// Every collective, with every algorithm, gives every rank exactly what it is to get: out of place
// and in place, with the same test body on every transport, in host memory and in that of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "test/support/buffer.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::run_ranks_on;
using testing::Combine;
using testing::Values;
using testing::ValuesIn;

using Data = std::vector<std::int32_t>;
using Buffer = test::Buffer<std::int32_t>;

// Element i of block `to` of rank `from`: all different.
std::int32_t element(int from, int to, std::size_t i) {
  return (from * 64 + to) * 100'000 + static_cast<std::int32_t>(i % 99'991);
}

// Blocks of n elements, one after another.
Data blocks(int count, std::size_t n, const std::function<std::int32_t(int, std::size_t)>& value) {
  Data data;
  data.reserve(static_cast<std::size_t>(count) * n);
  for (int b = 0; b < count; ++b) {
    for (std::size_t i = 0; i < n; ++i) data.push_back(value(b, i));
  }
  return data;
}

// Of inputs, and of outputs and what is both.
struct Memories {
  Memory in;
  Memory out;
};

constexpr Memories kHosts{Memory::kHost, Memory::kHost};

// One rank's view of a collective: its buffers as they are and as they are to be.
class Case {
 public:
  Case(Communicator& comm, const Memories& memories, std::size_t n, int root, std::string algorithm)
      : comm_(comm),
        memories_(memories),
        n_(n),
        root_(root),
        options_{.algorithm = std::move(algorithm)} {}

  void run(CallKind kind) {
    switch (kind) {
      case CallKind::kAllReduce:
        return all_reduce();
      case CallKind::kReduce:
        return reduce();
      case CallKind::kReduceScatter:
        return reduce_scatter();
      case CallKind::kAllGather:
        return all_gather();
      case CallKind::kGather:
        return gather();
      case CallKind::kScatter:
        return scatter();
      case CallKind::kBroadcast:
        return broadcast();
      case CallKind::kAllToAll:
        return all_to_all();
      default:
        FAIL() << name(kind);
    }
  }

 private:
  int p() const { return comm_.size(); }
  int me() const { return comm_.rank(); }
  bool is_root() const { return me() == root_; }
  // This rank's n elements, or its blocks for all.
  Data own() const {
    return blocks(1, n_, [&](int, std::size_t i) { return element(me(), 0, i); });
  }
  Data own_blocks() const {
    return blocks(p(), n_, [&](int b, std::size_t i) { return element(me(), b, i); });
  }
  Data all_blocks() const {
    return blocks(p(), n_, [&](int b, std::size_t i) { return element(b, 0, i); });
  }
  Data sum_of_blocks(int block) const {
    return blocks(1, n_, [&](int, std::size_t i) {
      std::int32_t sum = 0;
      for (int r = 0; r < p(); ++r) sum += element(r, block, i);
      return sum;
    });
  }
  Buffer place(Data data) const { return {memories_.out, std::move(data)}; }
  Buffer place_in(Data data) const { return {memories_.in, std::move(data)}; }
  // `block` among p blocks of -1.
  Buffer place_block(const Data& block) const {
    Data data(n_ * static_cast<std::size_t>(p()), -1);
    std::ranges::copy(block, data.begin() + static_cast<std::ptrdiff_t>(n_) * me());
    return place(std::move(data));
  }
  void expect(Buffer& is, const Data& due, const char* what) const {
    EXPECT_TRUE(is.read() == due) << what << " (" << options_.algorithm << "), rank " << me()
                                  << " of " << p() << ", " << n_ << " elements, root " << root_;
  }

  void all_reduce() {
    Buffer in = place_in(own()), out = place(Data(n_, -1)), data = place(own());
    comm_.all_reduce(in, out, ReduceOp::kSum, options_).wait();
    comm_.all_reduce(data, ReduceOp::kSum, options_).wait();
    expect(out, sum_of_blocks(0), "all_reduce");
    expect(data, sum_of_blocks(0), "all_reduce in place");
    expect(in, own(), "all_reduce's input");
  }
  void reduce() {
    Buffer in = place_in(own()), out = place(Data(is_root() ? n_ : 0, -1)), data = place(own());
    comm_.reduce(in, out, ReduceOp::kSum, root_, options_).wait();
    comm_.reduce(data, data, ReduceOp::kSum, root_, options_).wait();
    expect(out, is_root() ? sum_of_blocks(0) : Data(), "reduce");
    expect(data, is_root() ? sum_of_blocks(0) : own(), "reduce in place");
    expect(in, own(), "reduce's input");
  }
  void reduce_scatter() {
    Buffer in = place_in(own_blocks()), out = place(Data(n_, -1)), data = place(own_blocks());
    comm_.reduce_scatter(in, out, ReduceOp::kSum, options_).wait();
    comm_.reduce_scatter(data, data.block(me(), n_), ReduceOp::kSum, options_).wait();
    expect(out, sum_of_blocks(me()), "reduce_scatter");
    expect(in, own_blocks(), "reduce_scatter's input");
    Data due = own_blocks();
    std::ranges::copy(sum_of_blocks(me()), due.begin() + static_cast<std::ptrdiff_t>(n_) * me());
    expect(data, due, "reduce_scatter in place");
  }
  void all_gather() {
    Buffer in = place_in(own()), out = place_block({}), data = place_block(own());
    comm_.all_gather(in, out, options_).wait();
    comm_.all_gather(data.block(me(), n_), data, options_).wait();
    expect(out, all_blocks(), "all_gather");
    expect(data, all_blocks(), "all_gather in place");
  }
  void gather() {
    Buffer in = place_in(own());
    Buffer out = is_root() ? place_block({}) : place({});
    Buffer data = is_root() ? place_block(own()) : place({});
    comm_.gather(in, out, root_, options_).wait();
    Buffer again = place(own());
    comm_.gather(is_root() ? data.block(me(), n_) : again.view(), data, root_, options_).wait();
    expect(out, is_root() ? all_blocks() : Data(), "gather");
    expect(data, is_root() ? all_blocks() : Data(), "gather in place");
  }
  void scatter() {
    Buffer in = place_in(is_root() ? own_blocks() : Data());
    Buffer out = place(Data(n_, -1)), again = place(Data(n_, -1));
    comm_.scatter(in, out, root_, options_).wait();
    Buffer data = place(is_root() ? own_blocks() : Data());
    comm_.scatter(data, is_root() ? data.block(me(), n_) : again.view(), root_, options_).wait();
    const Data due = blocks(1, n_, [&](int, std::size_t i) { return element(root_, me(), i); });
    expect(out, due, "scatter");
    if (!is_root()) expect(again, due, "scatter in place at the root");
    if (is_root()) expect(in, own_blocks(), "scatter's input");
    if (is_root()) expect(data, own_blocks(), "scatter's input in place");
  }
  void broadcast() {
    Buffer data = place(is_root() ? own() : Data(n_, -1));
    comm_.broadcast(data, root_, options_).wait();
    expect(data, blocks(1, n_, [&](int, std::size_t i) { return element(root_, 0, i); }),
           "broadcast");
  }
  void all_to_all() {
    Buffer in = place_in(own_blocks()), data = place(own_blocks());
    Buffer out = place(Data(own_blocks().size(), -1));
    comm_.all_to_all(in, out, options_).wait();
    comm_.all_to_all(data, data, options_).wait();
    const Data due = blocks(p(), n_, [&](int b, std::size_t i) { return element(b, me(), i); });
    expect(out, due, "all_to_all");
    expect(data, due, "all_to_all in place");
    expect(in, own_blocks(), "all_to_all's input");
  }

  Communicator& comm_;
  Memories memories_;
  std::size_t n_;
  int root_;
  CallOptions options_;
};

const CallKind kKinds[] = {CallKind::kAllReduce, CallKind::kReduce,  CallKind::kReduceScatter,
                           CallKind::kAllGather, CallKind::kGather,  CallKind::kScatter,
                           CallKind::kBroadcast, CallKind::kAllToAll};

class EveryCollective : public testing::TestWithParam<std::tuple<std::string, Memories, int>> {};

// n = 0: only the agreement travels. 1, 7: less than a chunk for each rank. 4,097: several
// messages. 20,011 with short segments: several pieces, the last one ragged.
TEST_P(EveryCollective, GivesEveryRankWhatIsDue) {
  const auto& [transport, memories, ranks] = GetParam();
  const bool on_device = memories.in == Memory::kDevice || memories.out == Memory::kDevice;
  if (on_device && device_count() == 0) GTEST_SKIP() << "there is no device";
  Options options;
  options.segment_bytes = 16 << 10;
  run_ranks_on(
      transport, ranks,
      [memories = memories](Communicator& comm) {
        for (const CallKind kind : kKinds) {
          std::vector<std::string> algorithms = {"auto"};
          for (const Algorithm& family : algorithms_of(kind)) algorithms.push_back(family.name);
          for (const std::string& algorithm : algorithms) {
            for (const std::size_t n : {0, 1, 7, 4'097, 20'011}) {
              if (comm.size() > 4 && (n == 1 || n == 4'097)) continue;  // to save time
              const int root = static_cast<int>(n) % comm.size();
              Case(comm, memories, n, root, algorithm).run(kind);
            }
          }
        }
      },
      options);
}

class Empty : public testing::TestWithParam<std::string> {};

// Scenario 2: each collective without elements by each of its algorithms, and at once with some:
// what the empty one might have left on the way would not fit. Blocks that vary:
// unequal_blocks_test.cc.
TEST_P(Empty, Scenario2CollectivesLeaveTheNextOneAlone) {
  run_ranks_on(GetParam(), 3, [](Communicator& comm) {
    for (const CallKind kind : kKinds) {
      std::vector<std::string> algorithms = {"auto"};
      for (const Algorithm& family : algorithms_of(kind)) algorithms.push_back(family.name);
      for (const std::string& algorithm : algorithms) {
        for (const std::size_t n : {0, 0, 5, 0}) Case(comm, kHosts, n, 1, algorithm).run(kind);
      }
    }
    const int next = (comm.rank() + 1) % 3, last = (comm.rank() + 2) % 3;
    for (const std::size_t n : {0, 5, 0}) {
      std::vector<int> in(n, comm.rank()), out(n, -1);
      Request receive = comm.recv(out, last);
      comm.send(in, next).wait();
      receive.wait();
      EXPECT_EQ(out, std::vector<int>(n, last));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Empty, ValuesIn(test::transports()),
                         [](const auto& transport) { return transport.param; });

std::string name_of(const testing::TestParamInfo<EveryCollective::ParamType>& tested) {
  const auto& [transport, memories, ranks] = tested.param;
  return transport + "_" + test::text(memories.in) + "_to_" + test::text(memories.out) + "_" +
         std::to_string(ranks) + "_ranks";
}

// UCX moves the memory of emulated devices itself, unless it is told not to.
std::vector<std::string> with_ucx(std::vector<std::string> others, const std::string& ucx) {
  if (test::ucx_is_built()) others.push_back(ucx);
  return others;
}

constexpr Memories kDevices{Memory::kDevice, Memory::kDevice};
constexpr Memories kToDevice{Memory::kHost, Memory::kDevice};
constexpr Memories kToHost{Memory::kDevice, Memory::kHost};

INSTANTIATE_TEST_SUITE_P(Hosts, EveryCollective,
                         Combine(ValuesIn(test::transports()), Values(kHosts),
                                 Values(1, 2, 3, 4, 7, 8)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Devices, EveryCollective,
                         Combine(ValuesIn(test::transports()), Values(kDevices), Values(1, 2, 3)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(ManyDevices, EveryCollective,
                         Combine(Values("inproc", "sim"), Values(kDevices), Values(7)), name_of);
INSTANTIATE_TEST_SUITE_P(StagedDevices, EveryCollective,
                         Combine(ValuesIn(with_ucx({}, "ucx_staged")), Values(kDevices), Values(2)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(HostsAndDevices, EveryCollective,
                         Combine(ValuesIn(with_ucx({"inproc", "shm"}, "ucx")),
                                 Values(kToDevice, kToHost), Values(3)),
                         name_of);

}  // namespace
}  // namespace motley
