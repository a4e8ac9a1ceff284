// What one rank can see of a wrong call by itself is refused at once, with both numbers.
#include <gtest/gtest.h>

#include "comm/communicator.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

template <class Call>
void expect_refused(const std::vector<std::string>& facts, Call&& call) {
  test::expect_error(ErrorCode::kInvalid, facts, call);
}

TEST(Arguments, SizesThatDoNotFitAreNamed) {
  test::run_ranks(2, [](Communicator& comm) {
    std::vector<float> three(3), four(4), six(6);
    std::vector<double> doubles(3);
    const auto sum = ReduceOp::kSum;
    const int me = comm.rank();
    expect_refused({"all_reduce", "3 float32", "4 float32"},
                   [&] { return comm.all_reduce(three, four, sum); });
    expect_refused({"all_reduce", "3 float32", "3 float64"},
                   [&] { return comm.all_reduce(three, doubles, sum); });
    expect_refused({"reduce", "3 float32", "4 float32"},
                   [&] { return comm.reduce(three, four, sum, me); });
    expect_refused({"reduce_scatter", "`in` has 6", "2 members' blocks of 4 need 8"},
                   [&] { return comm.reduce_scatter(six, four, sum); });
    expect_refused({"all_gather", "`out` has 6", "2 members' blocks of 4 need 8"},
                   [&] { return comm.all_gather(four, six); });
    expect_refused({"gather", "`out` has 6", "need 8"}, [&] { return comm.gather(four, six, me); });
    expect_refused({"scatter", "`in` has 6", "need 8"},
                   [&] { return comm.scatter(six, four, me); });
    expect_refused({"all_to_all", "3 elements", "2 members"},
                   [&] { return comm.all_to_all(three, three); });
    expect_refused({"all_to_all", "4", "6"}, [&] { return comm.all_to_all(four, six); });
  });
}

// Counts that were negative before they became sizes: their sum wraps to what there is.
TEST(Arguments, CountsWhoseSumWrapsAreRefused) {
  test::run_ranks(2, [](Communicator& comm) {
    std::vector<float> one(1);
    const std::vector<std::size_t> wraps = {static_cast<std::size_t>(-1), 2}, right = {1, 0};
    expect_refused({"all_to_all_v", "`in` sum to", "has 1 elements"}, [&] {
      return comm.all_to_all_v({one, wraps}, {one, right});
    });
    expect_refused({"all_gather_v", "`out` sum to", "has 1 elements"}, [&] {
      return comm.all_gather_v(one, {one, wraps});
    });
  });
}

TEST(Arguments, RootsAndGroupsThatDoNotFitAreNamed) {
  test::run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(4), other(4), both(8);
    const Group pair({0, 1}, {.id = 1}), alone({1 - comm.rank()}, {.id = 2}), far({0, 1, 2});
    for (const int root : {-1, 2}) {
      const std::string text = "root " + std::to_string(root);
      expect_refused({"broadcast", text}, [&] { return comm.broadcast(data, root); });
      expect_refused({"gather", text}, [&] { return comm.gather(data, other, root); });
      expect_refused({"scatter", text}, [&] { return comm.scatter(data, other, root); });
      expect_refused({"reduce", text},
                     [&] { return comm.reduce(data, other, ReduceOp::kSum, root); });
    }
    expect_refused({"broadcast", "root " + std::to_string(comm.rank())},
                   [&] { return comm.broadcast(data, comm.rank(), {.group = &alone}); });
    expect_refused({"barrier", "rank " + std::to_string(comm.rank()), "1 ranks"},
                   [&] { return comm.barrier({.group = &alone}); });
    expect_refused({"barrier", "names rank 2", "2 ranks"},
                   [&] { return comm.barrier({.group = &far}); });
    expect_refused({"all_gather", "'bruck'", "direct", "doubling"},
                   [&] { return comm.all_gather(data, both, {.algorithm = "bruck"}); });
  });
}

TEST(Arguments, BuffersThatOverlapByAccidentAreRefused) {
  test::run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(8);
    const View all(data);
    const auto half = [&](std::size_t first) { return all.slice(first, 4); };
    const std::size_t other = comm.rank() == 0 ? 4 : 0;
    expect_refused({"all_reduce", "16 bytes", "overlap"},
                   [&] { return comm.all_reduce(half(0), half(1), ReduceOp::kSum); });
    expect_refused({"all_to_all", "overlap"}, [&] { return comm.all_to_all(half(0), half(1)); });
    // In place is this rank's own block, not the other's.
    expect_refused({"all_gather", "overlap"}, [&] { return comm.all_gather(half(other), all); });
    expect_refused({"reduce_scatter", "overlap"},
                   [&] { return comm.reduce_scatter(all, half(other), ReduceOp::kSum); });
    const std::vector<std::size_t> in = {1, 3}, out = {3, 1};
    expect_refused({"all_to_all_v", "overlap"}, [&] {
      return comm.all_to_all_v({half(0), in}, {half(0), out});
    });
  });
}

// In a program without devices; one with emulated ones is in device_collectives_test.
TEST(Arguments, DeviceMemoryIsRefusedWhereThereIsNoDevice) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  test::run_ranks(1, [](Communicator& comm) {
    std::vector<float> data(4);
    View device(data);
    device.memory = Memory::kDevice;
    test::expect_error(ErrorCode::kUnavailable, {"all_gather", "device memory", "no device"},
                       [&] { return comm.all_gather(data, device); });
  });
}

}  // namespace
}  // namespace motley
