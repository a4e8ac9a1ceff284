// Deterministic reductions: the same bits whatever the transport, the cut and the order of arrival,
// and sums of 16-bit floats that are rounded once. Scenarios by their numbers in the list of what
// users of other libraries reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/simulation.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks_on;

const CallOptions kDeterministic{.deterministic = true};

// Numbers of all magnitudes and both signs: their sum depends on the order.
template <class T>
std::vector<T> input_of(int rank, std::size_t n) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) + 1);
  std::vector<T> data(n);
  for (T& x : data) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    const double value = std::ldexp(unit * 2 - 1, static_cast<int>(random() % 20));
    x = static_cast<T>(static_cast<float>(value));
  }
  return data;
}

// The sum of all ranks' inputs, as members get it: x0 + x1 + x2 + …
template <class T>
std::vector<T> sum_in_order(int ranks, std::size_t n) {
  std::vector<float> sum(n);
  for (int r = 0; r < ranks; ++r) {
    const std::vector<T> term = input_of<T>(r, n);
    for (std::size_t i = 0; i < n; ++i) {
      const float x = static_cast<float>(term[i]);
      sum[i] = r == 0 ? x : sum[i] + x;
    }
  }
  std::vector<T> rounded;
  for (const float x : sum) rounded.push_back(static_cast<T>(x));
  return rounded;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// Every deterministic reduction gives the bits of the sum in order.
template <class T>
void expect_in_order(Communicator& comm, std::size_t block, Memory memory = Memory::kHost) {
  const int p = comm.size();
  const std::size_t n = block * static_cast<std::size_t>(p);
  const std::vector<T> due = sum_in_order<T>(p, n);
  const auto zeros = [memory](std::size_t count) {
    return test::Buffer<T>(memory, std::vector<T>(count));
  };
  const test::Buffer<T> in(memory, input_of<T>(comm.rank(), n));
  test::Buffer<T> all = zeros(n), mine = zeros(block), at_root = zeros(n);
  comm.all_reduce(in, all, ReduceOp::kSum, kDeterministic).wait();
  EXPECT_TRUE(same_bits(all.read(), due)) << "all_reduce, rank " << comm.rank() << " of " << p;
  comm.reduce_scatter(in, mine, ReduceOp::kSum, kDeterministic).wait();
  const auto first = due.begin() + static_cast<std::ptrdiff_t>(block) * comm.rank();
  EXPECT_TRUE(same_bits(mine.read(), {first, first + static_cast<std::ptrdiff_t>(block)}))
      << "reduce_scatter, rank " << comm.rank() << " of " << p;
  comm.reduce(in, at_root, ReduceOp::kSum, p - 1, kDeterministic).wait();
  if (comm.rank() != p - 1) return;
  EXPECT_TRUE(same_bits(at_root.read(), due)) << "reduce, of " << p;
}

class Deterministic : public testing::TestWithParam<std::string> {};

// Scenario 25: the same bits on every transport, for any length of messages, run again and again,
// on a device too.
TEST_P(Deterministic, Scenario25SameBitsOnEveryTransportAndForEveryCut) {
  test::emulate({.host_access = test::host_access_over(GetParam())});
  for (const int ranks : {1, 2, 3, 8}) {
    for (const std::size_t segment : {std::size_t{1} << 10, std::size_t{128} << 10}) {
      Options options;
      options.segment_bytes = segment;
      run_ranks_on(
          GetParam(), ranks,
          [](Communicator& comm) {
            expect_in_order<float>(comm, 501);
            expect_in_order<float>(comm, 501);
            expect_in_order<half>(comm, 77);
            expect_in_order<bfloat16>(comm, 77);
            expect_in_order<float>(comm, 501, Memory::kDevice);
            expect_in_order<half>(comm, 77, Memory::kDevice);
            expect_in_order<bfloat16>(comm, 77, Memory::kDevice);
          },
          options);
    }
  }
}

// Scenario 25: a buffer reduced whole and the same buffer reduced in parts.
TEST_P(Deterministic, Scenario25SameBitsForFusedAndSplitBuffers) {
  run_ranks_on(GetParam(), 3, [](Communicator& comm) {
    const std::vector<float> in = input_of<float>(comm.rank(), 10'000);
    std::vector<float> whole(in.size()), parts(in.size());
    comm.all_reduce(in, whole, ReduceOp::kSum, kDeterministic).wait();
    for (std::size_t first = 0; first < in.size(); first += 1'700) {
      const std::size_t n = std::min<std::size_t>(1'700, in.size() - first);
      comm.all_reduce(ConstView(in).slice(first, n), View(parts).slice(first, n), ReduceOp::kSum,
                      kDeterministic)
          .wait();
    }
    EXPECT_TRUE(same_bits(whole, parts));
    EXPECT_TRUE(same_bits(whole, sum_in_order<float>(3, in.size())));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Deterministic, testing::ValuesIn(test::transports()));

// Scenario 25: whatever arrives first. Latencies grow by up to ten times, at random.
TEST(DeterministicOrder, Scenario25SameBitsForAnyOrderOfArrival) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::run_simulated({.topology = Topology::uniform(7), .seed = seed, .jitter = 10},
                        [](int, std::unique_ptr<Transport> transport, Clock& clock) {
                          Options options;
                          options.segment_bytes = 256;
                          Communicator comm(std::move(transport), clock, options);
                          expect_in_order<float>(comm, 211);
                        });
  }
}

// The number of bfloat16 values between two.
int distance(bfloat16 a, bfloat16 b) {
  const auto ordered = [](bfloat16 x) {
    const int magnitude = x.bits & 0x7fff;
    return (x.bits & 0x8000) != 0 ? -magnitude : magnitude;
  };
  return std::abs(ordered(a) - ordered(b));
}

// Scenario 24: bfloat16 sums and averages of many ranks, within one unit in the last place of the
// sum in double precision. Terms of one sign: where they cancel no float is that exact.
TEST(DeterministicSums, Scenario24BFloat16OfManyRanksIsRoundedOnce) {
  for (const int ranks : {8, 64}) {
    constexpr std::size_t kCount = 2'000;
    std::vector<double> exact(kCount);
    std::vector<std::vector<bfloat16>> inputs;
    for (int r = 0; r < ranks; ++r) {
      inputs.push_back(input_of<bfloat16>(r, kCount));
      for (std::size_t i = 0; i < kCount; ++i) {
        inputs.back()[i].bits &= 0x7fff;
        exact[i] += static_cast<double>(static_cast<float>(inputs.back()[i]));
      }
    }
    run_ranks_on("sim", ranks, [&](Communicator& comm) {
      std::vector<bfloat16> sum(kCount), average(kCount);
      const auto& in = inputs[static_cast<std::size_t>(comm.rank())];
      comm.all_reduce(in, sum, ReduceOp::kSum, kDeterministic).wait();
      comm.all_reduce(in, average, ReduceOp::kAverage).wait();
      int worst = 0;
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto nearest = [](double x) { return bfloat16(static_cast<float>(x)); };
        worst = std::max({worst, distance(sum[i], nearest(exact[i])),
                          distance(average[i], nearest(exact[i] / ranks))});
      }
      EXPECT_LE(worst, 1) << ranks << " ranks";
    });
  }
}

// Weights that powers of two and small numbers make exact.
TEST(WeightedSum, IsThatOfEachRanksWeightTimesItsTerm) {
  test::run_ranks(3, [](Communicator& comm) {
    const CallOptions options{.weight = 0.25 * (comm.rank() + 1)};
    const auto reduce = [&]<class T>(T term) {
      const std::vector<T> in(6, term);
      std::vector<T> out(6), block(2), data = in;
      comm.all_reduce(in, out, ReduceOp::kWeightedSum, options).wait();
      comm.all_reduce(data, ReduceOp::kWeightedSum, options).wait();
      comm.reduce_scatter(in, block, ReduceOp::kWeightedSum, options).wait();
      EXPECT_TRUE(same_bits(in, std::vector<T>(6, term)));
      for (const auto* result : {&out, &data, &block}) {
        for (const T x : *result) {
          EXPECT_EQ(static_cast<double>(static_cast<float>(x)), 0.25 * (1 * 1 + 2 * 2 + 3 * 3));
        }
      }
    };
    const auto term = static_cast<float>(comm.rank() + 1);
    reduce(static_cast<double>(term));
    reduce(term);
    reduce(half(term));
    reduce(bfloat16(term));
  });
}

TEST(WeightedSum, RefusesWhatHasNoWeight) {
  test::run_ranks(1, [](Communicator& comm) {
    std::vector<float> data(2);
    std::vector<std::int32_t> whole(2);
    expect_error(ErrorCode::kInvalid, {"weighted sum of int32"},
                 [&] { (void)comm.all_reduce(whole, ReduceOp::kWeightedSum); });
    expect_error(ErrorCode::kInvalid, {"weight is 0.5", "sum"},
                 [&] { (void)comm.all_reduce(data, ReduceOp::kSum, {.weight = 0.5}); });
    expect_error(ErrorCode::kInvalid, {"inf"}, [&] {
      (void)comm.all_reduce(data, ReduceOp::kWeightedSum, {.weight = INFINITY});
    });
    expect_error(ErrorCode::kInvalid, {"ring", "ordered"}, [&] {
      (void)comm.all_reduce(data, ReduceOp::kSum, {.algorithm = "ring", .deterministic = true});
    });
  });
}

// Scenario 27: integers wrap, in every type and in every algorithm, as dtype.h says.
TEST(IntegerOverflow, Scenario27Wraps) {
  test::run_ranks(3, [](Communicator& comm) {
    for (const char* algorithm : {"direct", "ring", "halving_doubling", "tree", "ordered"}) {
      const auto sum = [&]<class T>(T term) {
        std::vector<T> data(9, term);
        comm.all_reduce(data, ReduceOp::kSum, {.algorithm = algorithm}).wait();
        return data[8];
      };
      EXPECT_EQ(sum(std::int8_t{100}), 44) << algorithm;  // 300 - 256
      EXPECT_EQ(sum(std::int16_t{20'000}), 60'000 - 65'536) << algorithm;
      EXPECT_EQ(sum(std::int32_t{2'000'000'000}), 1'705'032'704) << algorithm;
      EXPECT_EQ(sum(INT64_MAX), INT64_MAX - 2) << algorithm;
    }
  });
}

}  // namespace
}  // namespace motley
