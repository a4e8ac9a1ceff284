// Every collective, with every algorithm, gives every rank exactly what it is to get: out of place
// and in place, with the same test body on every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/algorithm/families.h"
#include "comm/communicator.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::run_ranks_on;
using testing::Combine;
using testing::Values;
using testing::ValuesIn;

using Data = std::vector<std::int32_t>;

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

// One rank's view of a collective: its buffers as they are and as they are to be.
class Case {
 public:
  Case(Communicator& comm, std::size_t n, int root, std::string algorithm)
      : comm_(comm), n_(n), root_(root), options_{.algorithm = std::move(algorithm)} {}

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
  std::span<std::int32_t> block_of(Data& data, int block) const {
    return std::span(data).subspan(static_cast<std::size_t>(block) * n_, n_);
  }
  void expect(const Data& is, const Data& due, const char* what) const {
    EXPECT_TRUE(is == due) << what << " (" << options_.algorithm << "), rank " << me() << " of "
                           << p() << ", " << n_ << " elements, root " << root_;
  }

  void all_reduce() {
    const Data in = own();
    Data out(n_, -1), data = in;
    comm_.all_reduce(in, out, ReduceOp::kSum, options_).wait();
    comm_.all_reduce(data, ReduceOp::kSum, options_).wait();
    expect(out, sum_of_blocks(0), "all_reduce");
    expect(data, sum_of_blocks(0), "all_reduce in place");
    expect(in, own(), "all_reduce's input");
  }
  void reduce() {
    const Data in = own();
    Data out(is_root() ? n_ : 0, -1), data = in;
    comm_.reduce(in, out, ReduceOp::kSum, root_, options_).wait();
    comm_.reduce(data, data, ReduceOp::kSum, root_, options_).wait();
    expect(out, is_root() ? sum_of_blocks(0) : Data(), "reduce");
    expect(data, is_root() ? sum_of_blocks(0) : own(), "reduce in place");
    expect(in, own(), "reduce's input");
  }
  void reduce_scatter() {
    const Data in = own_blocks();
    Data out(n_, -1), data = in;
    comm_.reduce_scatter(in, out, ReduceOp::kSum, options_).wait();
    comm_.reduce_scatter(data, block_of(data, me()), ReduceOp::kSum, options_).wait();
    expect(out, sum_of_blocks(me()), "reduce_scatter");
    expect(in, own_blocks(), "reduce_scatter's input");
    Data due = own_blocks();
    std::ranges::copy(sum_of_blocks(me()), block_of(due, me()).begin());
    expect(data, due, "reduce_scatter in place");
  }
  void all_gather() {
    const Data in = own();
    Data out(n_ * static_cast<std::size_t>(p()), -1), data = out;
    comm_.all_gather(in, out, options_).wait();
    std::ranges::copy(in, block_of(data, me()).begin());
    comm_.all_gather(block_of(data, me()), data, options_).wait();
    expect(out, all_blocks(), "all_gather");
    expect(data, all_blocks(), "all_gather in place");
  }
  void gather() {
    const Data in = own();
    Data out(is_root() ? n_ * static_cast<std::size_t>(p()) : 0, -1), data = out;
    comm_.gather(in, out, root_, options_).wait();
    if (is_root()) std::ranges::copy(in, block_of(data, me()).begin());
    comm_.gather(is_root() ? ConstView(block_of(data, me())) : ConstView(in), data, root_, options_)
        .wait();
    expect(out, is_root() ? all_blocks() : Data(), "gather");
    expect(data, is_root() ? all_blocks() : Data(), "gather in place");
  }
  void scatter() {
    Data in = is_root() ? own_blocks() : Data();
    Data out(n_, -1), again = out;
    comm_.scatter(in, out, root_, options_).wait();
    const View place = is_root() ? View(block_of(in, me())) : View(again);
    comm_.scatter(in, place, root_, options_).wait();
    const Data due = blocks(1, n_, [&](int, std::size_t i) { return element(root_, me(), i); });
    expect(out, due, "scatter");
    if (!is_root()) expect(again, due, "scatter in place at the root");
    if (is_root()) expect(in, own_blocks(), "scatter's input");
  }
  void broadcast() {
    Data data = is_root() ? own() : Data(n_, -1);
    comm_.broadcast(data, root_, options_).wait();
    expect(data, blocks(1, n_, [&](int, std::size_t i) { return element(root_, 0, i); }),
           "broadcast");
  }
  void all_to_all() {
    const Data in = own_blocks();
    Data out(in.size(), -1), data = in;
    comm_.all_to_all(in, out, options_).wait();
    comm_.all_to_all(data, data, options_).wait();
    const Data due = blocks(p(), n_, [&](int b, std::size_t i) { return element(b, me(), i); });
    expect(out, due, "all_to_all");
    expect(data, due, "all_to_all in place");
    expect(in, own_blocks(), "all_to_all's input");
  }

  Communicator& comm_;
  std::size_t n_;
  int root_;
  CallOptions options_;
};

const CallKind kKinds[] = {CallKind::kAllReduce, CallKind::kReduce,  CallKind::kReduceScatter,
                           CallKind::kAllGather, CallKind::kGather,  CallKind::kScatter,
                           CallKind::kBroadcast, CallKind::kAllToAll};

class EveryCollective : public testing::TestWithParam<std::tuple<std::string, int>> {};

// n = 0: only the agreement travels. 1, 7: less than a chunk for each rank. 4,097: several
// messages. 20,011 with short segments: several pieces, the last one ragged.
TEST_P(EveryCollective, GivesEveryRankWhatIsDue) {
  const auto& [transport, ranks] = GetParam();
  Options options;
  options.segment_bytes = 16 << 10;
  run_ranks_on(
      transport, ranks,
      [](Communicator& comm) {
        for (const CallKind kind : kKinds) {
          std::vector<std::string> algorithms = {"auto"};
          for (const Algorithm& family : algorithms_of(kind)) algorithms.push_back(family.name);
          for (const std::string& algorithm : algorithms) {
            for (const std::size_t n : {0, 1, 7, 4'097, 20'011}) {
              if (comm.size() > 4 && (n == 1 || n == 4'097)) continue;  // to save time
              const int root = static_cast<int>(n) % comm.size();
              Case(comm, n, root, algorithm).run(kind);
            }
          }
        }
      },
      options);
}

INSTANTIATE_TEST_SUITE_P(Transports, EveryCollective,
                         Combine(ValuesIn(test::transports()), Values(1, 2, 3, 4, 7, 8)),
                         [](const auto& sizes) {
                           return std::get<0>(sizes.param) + "_" +
                                  std::to_string(std::get<1>(sizes.param)) + "_ranks";
                         });

}  // namespace
}  // namespace motley
