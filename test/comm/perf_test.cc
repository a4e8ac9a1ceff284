// The parts of motley-perf: which cells a plan has, that what is wrong in a result is counted, and
// that the timing rule samples as long and as often as it says, on a clock that the test drives.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/cli/perf/motley_subject.h"
#include "comm/cli/perf/payload.h"
#include "comm/cli/perf/plan.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/run.h"
#include "comm/cli/perf/sampling.h"
#include "comm/error.h"
#include "comm/kernel/reduce.h"
#include "comm/local.h"
#include "test/support/device_emulated.h"
#include "test/support/manual_clock.h"

namespace motley::perf {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::size_t> counts(const std::vector<Cell>& all) {
  std::vector<std::size_t> result;
  for (const Cell& cell : all) result.push_back(cell.count);
  return result;
}

TEST(Plan, RoundsSizesUpToWholeElementsAndDropsRepeats) {
  const Plan plan{.sizes = {1, 2, 4, 7, 8}, .dtypes = {DType::kFloat32}};
  EXPECT_THAT(counts(cells(plan, 3)), ElementsAre(1, 2));
}

TEST(Plan, HasOneBarrierHoweverManySizesThereAre) {
  const Plan plan{.kinds = {CallKind::kBarrier},
                  .sizes = {4, 1024},
                  .dtypes = {DType::kFloat32, DType::kInt8},
                  .places = {Place::kOut, Place::kIn}};
  EXPECT_THAT(counts(cells(plan, 2)), ElementsAre(0));
}

TEST(Plan, ReadsSizesWithUnits) {
  EXPECT_EQ(parse_size("-b", "4"), 4u);
  EXPECT_EQ(parse_size("-b", "64K"), 65536u);
  EXPECT_EQ(parse_size("-b", "1G"), std::size_t{1} << 30);
  EXPECT_THAT(size_range(4, 300, 4), ElementsAre(4, 16, 64, 256));
  for (const char* text : {"", "0", "-4", "4Q", "4KB", "K", "18446744073709551615", "9999999T"}) {
    EXPECT_THROW(parse_size("-b", text), Error) << text;
  }
}

TEST(Plan, NamesWhatMayStandWhereANameIsWrong) {
  try {
    parse_dtypes("float32,float31");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("float31"), HasSubstr("bfloat16")));
  }
}

std::string str(const Cell& cell, int rank, int ranks) {
  return fmt::format("{} by {} of {} {} place, rank {} of {}", name(cell.kind), cell.algorithm,
                     name(cell.dtype), name(cell.place), rank, ranks);
}

// Every type and operation: the result of the library is right, and a changed element is not.
TEST(Payload, CountsWhatIsWrong) {
  for (const int ranks : {1, 3, 8}) {
    run_local(ranks, [&](Communicator& comm) {
      for (Cell cell :
           cells({.sizes = {997 * 8}, .dtypes = parse_dtypes("all"), .ops = parse_ops("all")},
                 ranks)) {
        std::vector<std::byte> data(cell.bytes());
        const View view(data.data(), cell.count, cell.dtype);
        fill(cell, comm.rank(), ranks, view);
        comm.all_reduce(view, cell.op).wait();
        EXPECT_EQ(wrong(cell, comm.rank(), ranks, view), 0u)
            << name(cell.dtype) << " " << name(cell.op) << " on " << ranks << " ranks";
        data[3] ^= std::byte{0x10};
        data[cell.bytes() - 1] ^= std::byte{0x10};
        EXPECT_EQ(wrong(cell, comm.rank(), ranks, view), 2u)
            << name(cell.dtype) << " " << name(cell.op) << " on " << ranks << " ranks";
      }
    });
  }
}

// Every collective, algorithm, place and type, on ranks that block sizes do not divide by chance:
// results are right, and a changed element, or two blocks exchanged, is not.
TEST(Payload, KnowsTheResultOfEveryCollective) {
  const Plan plan{.kinds = parse_kinds("all"),
                  .sizes = {24 * 11},
                  .dtypes = {DType::kFloat32, DType::kInt8},
                  .places = parse_places("out,in"),
                  .algorithms = {"all"},
                  .root = 1};
  for (const int ranks : {2, 3, 8}) {
    run_local(ranks, [&](Communicator& comm) {
      MotleySubject subject(comm);
      for (const Cell& cell : cells(plan, ranks)) {
        const Extent size = extent(cell, comm.rank(), ranks);
        const std::size_t bytes = std::max<std::size_t>(cell.bytes(), 1);
        std::vector<std::byte> input(bytes), output(bytes, std::byte{0x5a});
        const View out(output.data(), size.out, cell.dtype);
        const View in = cell.place == Place::kIn ? out.slice(size.in_place, size.in)
                                                 : View(input.data(), size.in, cell.dtype);
        fill(cell, comm.rank(), ranks, in);
        subject.prepare(cell, in, out)();
        const std::string what = str(cell, comm.rank(), ranks);
        EXPECT_EQ(wrong(cell, comm.rank(), ranks, out), 0u) << what;
        if (size.out == 0) continue;
        output[size.out * size_bytes(cell.dtype) - 1] ^= std::byte{0x10};
        EXPECT_EQ(wrong(cell, comm.rank(), ranks, out), 1u) << what;
      }
    });
  }
}

// On an emulated device, whose memory the host may not touch.
TEST(Run, ChecksAndTimesBuffersOnDevices) {
  test::emulate({.host_access = test::HostAccess::kForbidden});
  const Plan plan{.kinds = {CallKind::kAllReduce, CallKind::kAllGather, CallKind::kSendRecv},
                  .sizes = {4, 3000},
                  .places = {Place::kOut, Place::kIn},
                  .buffers = {Buffers::kDevice},
                  .rule = {.cap = Duration(1), .samples = 1}};
  run_local(2, [&](Communicator& comm) {
    MotleySubject subject(comm);
    for (const Cell& cell : cells(plan, 2)) EXPECT_NE(subject.algorithm(cell), "shared memory");
    if (comm.rank() != 0) return run(subject, plan, comm.clock(), nullptr);
    Report report({.program = "a test", .ranks = 2}, "", nullptr);
    run(subject, plan, comm.clock(), &report);
    EXPECT_EQ(report.wrong_cells(), 0);
  });
}

// A long bfloat16 sum cannot be exact: rounding is allowed for, and nothing else.
TEST(Payload, AllowsForRoundingOfLongSums) {
  constexpr int kRanks = 64;
  const Cell cell{.dtype = DType::kBFloat16, .count = 100};
  std::vector<bfloat16> sum(cell.count), term(cell.count);
  fill(cell, 0, kRanks, sum);
  for (int rank = 1; rank < kRanks; ++rank) {
    fill(cell, rank, kRanks, term);
    reduce(View(sum), ConstView(term).bytes(), ReduceOp::kSum);
  }
  const ConstView result = sum;
  EXPECT_EQ(wrong(cell, 0, kRanks, result), 0u);
  for (bfloat16& value : sum) value = bfloat16(static_cast<float>(value) * 1.5F);
  EXPECT_EQ(wrong(cell, 0, kRanks, result), cell.count);
}

// One rank of a library whose calls take what the test says; the others take `slower` times longer.
class FakeLibrary final : public Subject {
 public:
  explicit FakeLibrary(double slower) : slower_(slower) {}
  std::string library() const override { return "fake"; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  void barrier() override { ++barriers; }
  void greatest(std::span<double> values) override {
    for (double& value : values) value *= slower_;
  }
  std::unique_ptr<Storage> allocate(std::size_t bytes, Buffers) override {
    return private_storage(bytes);
  }
  Call prepare(const Cell&, ConstView, View) override { return {}; }
  std::string algorithm(const Cell&) const override { return "-"; }

  int barriers = 0;

 private:
  double slower_;
};

TEST(Sampling, RepeatsShortCallsUntilASampleIsLongEnough) {
  test::ManualClock clock;
  FakeLibrary library(1);
  const auto call = [&] { clock.advance(std::chrono::nanoseconds(100)); };
  const Timing timing = measure(library, call, {.samples = 9}, clock);
  EXPECT_GE(timing.calls * 100e-9, 300e-6);
  EXPECT_LE(timing.calls * 100e-9, 400e-6);
  EXPECT_EQ(timing.samples, 9);
  EXPECT_NEAR(timing.time, 100e-9, 1e-12);
  EXPECT_NEAR(timing.p99, 100e-9, 1e-12);
}

TEST(Sampling, TakesTheSlowestRankAndTheMedian) {
  test::ManualClock clock;
  FakeLibrary library(3);
  int calls = 0;
  // Every fifth call is stuck for ten times as long.
  const auto call = [&] { clock.advance(std::chrono::milliseconds(++calls % 5 == 0 ? 10 : 1)); };
  const Timing timing = measure(library, call, {.samples = 50}, clock);
  EXPECT_EQ(timing.calls, 1);
  EXPECT_NEAR(timing.time, 3e-3, 1e-9);
  EXPECT_NEAR(timing.p99, 30e-3, 1e-9);
}

TEST(Sampling, StopsAtTheCapButTakesOneSample) {
  test::ManualClock clock;
  FakeLibrary library(1);
  const auto call = [&] { clock.advance(seconds(0.3)); };
  EXPECT_EQ(measure(library, call, {.cap = seconds(2)}, clock).samples, 6);
  const auto slow = [&] { clock.advance(seconds(5)); };
  EXPECT_EQ(measure(library, slow, {.cap = seconds(2)}, clock).samples, 1);
}

// Whose first call is held up for longer than the cap, as a rank that has lost its core is.
TEST(Sampling, DoesNotTakeOneLongCallForAll) {
  test::ManualClock clock;
  FakeLibrary library(1);
  int calls = 0;
  const auto call = [&] {
    clock.advance(++calls == 1 ? std::chrono::microseconds(80'000) : std::chrono::microseconds(50));
  };
  const Timing timing = measure(library, call, {.cap = seconds(0.05)}, clock);
  EXPECT_NEAR(timing.time, 50e-6, 1e-9);
  EXPECT_GE(timing.calls * 50e-6, 300e-6);
}

TEST(Sampling, FindsQuantilesByNearestRank) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(quantile(values, 0.5), 50);
  EXPECT_EQ(quantile(values, 0.99), 99);
  EXPECT_EQ(quantile({7}, 0.99), 7);
}

}  // namespace
}  // namespace motley::perf
