// Every collective takes every dtype, and those that reduce every operation, by schedules of
// messages and in shared memory, in host memory and in that of a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/communicator.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/elements.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::Buffer;

constexpr int kRanks = 3;
constexpr std::size_t kElements = 5;

// Whole numbers of up to 127 are exact in every type, so every call has one right answer.
template <class T>
std::vector<int> read(test::Buffer<T>& data) {
  std::vector<int> numbers;
  for (const T& x : data.read()) numbers.push_back(static_cast<int>(static_cast<float>(x)));
  return numbers;
}
template <class T>
std::vector<T> written(const std::vector<int>& numbers) {
  std::vector<T> data;
  for (const int x : numbers) data.push_back(test::element<T>(x));
  return data;
}

// Element i of block b of rank r, at most 2 * 18 + 4 * 2 + 2.
int element(int rank, int block, std::size_t i) {
  return 18 * rank + 4 * block + static_cast<int>(i % 3);
}
// The n elements of each of some blocks.
std::vector<int> blocks(const std::vector<std::pair<int, int>>& which, std::size_t n) {
  std::vector<int> numbers;
  for (const auto& [rank, block] : which) {
    for (std::size_t i = 0; i < n; ++i) numbers.push_back(element(rank, block, i));
  }
  return numbers;
}
std::vector<int> from_all(int block, std::size_t n) {
  return blocks({{0, block}, {1, block}, {2, block}}, n);
}
std::vector<int> of_rank(int rank, std::size_t n) {
  return blocks({{rank, 0}, {rank, 1}, {rank, 2}}, n);
}

// What op makes of a term of each rank: 2, 4 and 6, the same for all elements.
constexpr std::pair<ReduceOp, int> kOps[] = {
    {ReduceOp::kSum, 12},    {ReduceOp::kProduct, 48},    {ReduceOp::kMin, 2}, {ReduceOp::kMax, 6},
    {ReduceOp::kAverage, 4}, {ReduceOp::kWeightedSum, 28}};  // 2 + 2 * 4 + 3 * 6

template <class T>
void reduce_with_every_operation(Communicator& comm, Memory memory) {
  for (const auto& [op, due] : kOps) {
    const bool weighs = op == ReduceOp::kWeightedSum;
    if (weighs && std::is_integral_v<T>) continue;
    SCOPED_TRACE(testing::Message() << name(op) << " at rank " << comm.rank());
    const CallOptions options{.weight = weighs ? comm.rank() + 1. : 1.};
    const auto zeros = [memory](std::size_t n) { return Buffer<T>(memory, std::vector<T>(n)); };
    const Buffer<T> in(memory,
                       std::vector<T>(kRanks * kElements, test::element<T>(2 * comm.rank() + 2)));
    const ConstView one = ConstView(in).slice(0, kElements);
    const std::vector<int> all_due(kElements, due);
    Buffer<T> out = zeros(kElements);
    comm.all_reduce(one, out, op, options).wait();
    EXPECT_EQ(read(out), all_due);
    Buffer<T> scattered = zeros(kElements);
    comm.reduce_scatter(in, scattered, op, options).wait();
    EXPECT_EQ(read(scattered), all_due);
    Buffer<T> at_root = zeros(comm.rank() == 1 ? kElements : 0);
    comm.reduce(one, at_root, op, 1, options).wait();
    EXPECT_EQ(read(at_root), comm.rank() == 1 ? all_due : std::vector<int>());
  }
}

template <class T>
void move_blocks(Communicator& comm, Memory memory) {
  const int me = comm.rank();
  const auto zeros = [memory](std::size_t n) { return Buffer<T>(memory, std::vector<T>(n)); };
  const Buffer<T> mine(memory, written<T>(blocks({{me, 0}}, kElements)));
  const Buffer<T> for_all(memory, written<T>(of_rank(me, kElements)));
  Buffer<T> out = zeros(kRanks * kElements);
  comm.all_gather(mine, out).wait();
  EXPECT_EQ(read(out), from_all(0, kElements));
  Buffer<T> at_root = zeros(me == 2 ? kRanks * kElements : 0);
  comm.gather(mine, at_root, 2).wait();
  EXPECT_EQ(read(at_root), me == 2 ? from_all(0, kElements) : std::vector<int>());
  Buffer<T> own = zeros(kElements);
  comm.scatter(for_all, own, 1).wait();
  EXPECT_EQ(read(own), blocks({{1, me}}, kElements));
  Buffer<T> data(memory, written<T>(blocks({{me, 0}}, kElements)));
  comm.broadcast(data, 2).wait();
  EXPECT_EQ(read(data), blocks({{2, 0}}, kElements));
  comm.all_to_all(for_all, out).wait();
  EXPECT_EQ(read(out), from_all(me, kElements));
}

// Block b of all_gather_v has b + 1 elements; of all_to_all_v, 2 b + r + 1 go from r to b.
template <class T>
void move_unequal_blocks(Communicator& comm, Memory memory) {
  const int me = comm.rank();
  std::vector<std::size_t> counts, in_counts, out_counts;
  std::vector<int> gathered, sent, received;
  const auto add = [](std::vector<int>& to, std::vector<std::size_t>& sizes, int rank, int block,
                      int n) {
    const auto more = blocks({{rank, block}}, static_cast<std::size_t>(n));
    to.insert(to.end(), more.begin(), more.end());
    sizes.push_back(more.size());
  };
  for (int r = 0; r < kRanks; ++r) {
    add(gathered, counts, r, 0, r + 1);
    add(sent, in_counts, me, r, 2 * r + me + 1);
    add(received, out_counts, r, me, 2 * me + r + 1);
  }
  const Buffer<T> own(memory, written<T>(blocks({{me, 0}}, static_cast<std::size_t>(me) + 1)));
  Buffer<T> all(memory, std::vector<T>(gathered.size()));
  comm.all_gather_v(own, {.data = all, .counts = counts}).wait();
  EXPECT_EQ(read(all), gathered);
  const Buffer<T> in(memory, written<T>(sent));
  Buffer<T> out(memory, std::vector<T>(received.size()));
  comm.all_to_all_v({.data = in, .counts = in_counts}, {.data = out, .counts = out_counts}).wait();
  EXPECT_EQ(read(out), received);
}

template <class T>
void move_messages(Communicator& comm, Memory memory) {
  const Buffer<T> message(memory, written<T>(blocks({{0, 1}}, kElements)));
  Buffer<T> data(memory, std::vector<T>(kElements));
  if (comm.rank() == 0) comm.send(message, 2).wait();
  if (comm.rank() != 2) return;
  comm.recv(data, 0).wait();
  EXPECT_EQ(read(data), blocks({{0, 1}}, kElements));
}

std::vector<std::string> transports_of_test() {
  std::vector<std::string> all = test::transports();
  std::erase(all, "sim");
  return all;
}

template <class T>
class EveryDType : public testing::Test {
 protected:
  static void run(void (*body)(Communicator&, Memory)) {
    for (const std::string& transport : transports_of_test()) {
      test::emulate({.host_access = test::host_access_over(transport)});
      for (const Memory memory : {Memory::kHost, Memory::kDevice}) {
        SCOPED_TRACE(transport + ", " + test::text(memory));
        test::run_ranks_on(transport, kRanks, [&](Communicator& comm) { body(comm, memory); });
      }
    }
  }
};
TYPED_TEST_SUITE(EveryDType, test::ElementTypes);

TYPED_TEST(EveryDType, IsReducedWithEveryOperation) {
  this->run(reduce_with_every_operation<TypeParam>);
}
TYPED_TEST(EveryDType, IsMovedInBlocks) { this->run(move_blocks<TypeParam>); }
TYPED_TEST(EveryDType, IsMovedInUnequalBlocks) { this->run(move_unequal_blocks<TypeParam>); }
TYPED_TEST(EveryDType, IsSentAndReceived) { this->run(move_messages<TypeParam>); }

}  // namespace
}  // namespace motley
