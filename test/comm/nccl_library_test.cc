// NCCL itself, as far as the machine goes: with no driver or device it says so at once; with one, a
// rank alone on it gets its own data back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "comm/communicator.h"
#include "comm/local.h"
#include "comm/transport/nccl.h"
#include "test/support/elements.h"
#include "test/support/errors.h"

namespace motley::test {
namespace {

TEST(NcclLibrary, SaysThatThereIsNoDriver) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  expect_error(ErrorCode::kUnavailable, {"NCCL: unhandled cuda error", "driver", "MOTLEY_NCCL=off"},
               [] {
                 const auto nccl = make_nccl({.size = 1, .clock = Clock::real()});
                 nccl->connect(Group::world(1), new_nccl_id(), Clock::real().now() + seconds(10));
               });
}

TEST(NcclLibrary, EndsUseNcclOnEveryRankWhereThereIsNoDriver) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  run_local(2, [](Communicator& comm) {
    expect_error(ErrorCode::kUnavailable, {}, [&] { comm.use_nccl(); });
    std::vector<float> data(5, 1);
    comm.all_reduce(data, ReduceOp::kSum).wait();  // the host's calls go on
    EXPECT_THAT(data, testing::Each(2));
  });
}

template <class T>
class NcclOneRank : public testing::Test {};
TYPED_TEST_SUITE(NcclOneRank, ElementTypes);

TYPED_TEST(NcclOneRank, GetsItsOwnDataBackFromTheDevice) {
  using T = TypeParam;
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  run_local(1, [](Communicator& comm) {
    comm.use_nccl();
    const Stream stream;
    const std::size_t n = 100'003;
    const std::vector<T> values(n, element<T>(3));
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kAverage}) {
      for (const bool deterministic : {false, true}) {
        std::vector<T> got(n);
        const DeviceBuffer in(n * sizeof(T)), out(n * sizeof(T));
        const View from = in.view(n, dtype_of<T>), to = out.view(n, dtype_of<T>);
        motley::copy(from, ConstView(values), stream);
        comm.all_reduce(from, to, op, {.deterministic = deterministic, .stream = stream}).wait();
        comm.broadcast(to, 0, {.stream = stream}).wait();
        comm.all_to_all(to, to, {.stream = stream}).wait();
        motley::copy(View(got), to, stream);
        synchronize(stream);
        EXPECT_TRUE(bytes_of(got) == bytes_of(values)) << name(op);
      }
    }
  });
}

}  // namespace
}  // namespace motley::test
