// Every width of vectors that this processor has, and a device, give the bits of plain arithmetic,
// element by element, whatever the values: NaN, infinities, zeros of both signs, subnormals, ties.
#include "comm/kernel/combine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "comm/kernel/combine_vector.h"
#include "comm/kernel/cpu.h"
#include "comm/kernel/ops.h"
#include "test/support/device_array.h"
#include "test/support/elements.h"
#include "test/support/random_elements.h"

namespace motley {
namespace {

struct Width {
  const char* name;
  CombinePart (*part)(DType, ReduceOp) noexcept;
};

std::vector<Width> widths() {
  std::vector<Width> all = {{"128", vector_part<16>}};
  if (vector_width() != VectorWidth::k128) all.push_back({"256", combine_256});
  if (vector_width() == VectorWidth::k512) all.push_back({"512", combine_512});
  return all;
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                             ReduceOp::kMax, ReduceOp::kAverage, ReduceOp::kWeightedSum};

constexpr double kWeights[] = {0.3, -1.7, 1, 0, 1e-3, 2.5, 1e4, 0.1};

// One by one, as combine.h says it.
template <class T>
T expected(const std::vector<std::vector<T>>& sources, std::size_t i, ReduceOp op) {
  using A = Wide<T>;
  const auto term = [&](std::size_t s) {
    A wide = static_cast<A>(sources[s][i]);
    if constexpr (!std::is_integral_v<T>) {
      if (op == ReduceOp::kWeightedSum) wide *= static_cast<A>(kWeights[s]);
    }
    return wide;
  };
  A sum = term(0);
  for (std::size_t s = 1; s < sources.size(); ++s) {
    const A next = term(s);
    dispatch(dtype_of<A>, op, [&]<class U>(auto functor) {
      if constexpr (std::is_same_v<U, A>) sum = functor(sum, next);
    });
  }
  const int count = static_cast<int>(sources.size());
  return static_cast<T>(op == ReduceOp::kAverage ? divided(sum, count) : sum);
}

template <class T>
void check(const std::vector<std::vector<T>>& sources) {
  std::vector<const std::byte*> pointers;
  for (const auto& source : sources) {
    pointers.push_back(reinterpret_cast<const std::byte*>(source.data()));
  }
  const std::size_t n = sources[0].size();
  const int count = static_cast<int>(sources.size());
  for (const ReduceOp op : kOps) {
    if (op == ReduceOp::kWeightedSum && std::is_integral_v<T>) continue;  // there is none
    for (const Width& width : widths()) {
      std::vector<T> out(n);
      auto* const to = reinterpret_cast<std::byte*>(out.data());
      const bool average = op == ReduceOp::kAverage;
      const Terms terms{pointers.data(), count, average, kWeights};
      const std::size_t done = width.part(dtype_of<T>, op)(to, terms, n);
      const bool one_by_one = average && std::is_integral_v<T>;
      EXPECT_TRUE(one_by_one || done + 128 > n) << "of " << n << " only " << done << " were done";
      for (std::size_t i = 0; i < done; ++i) {
        ASSERT_TRUE(test::alike(out[i], expected(sources, i, op)))
            << name(op) << ", " << width.name << " bits, element " << i;
      }
    }
    std::vector<T> out = sources[0];  // in place, with the rest
    Combine(dtype_of<T>, op)(reinterpret_cast<std::byte*>(out.data()), pointers.data(), count, n,
                             kWeights);
    for (std::size_t i = 0; i < n; ++i) {
      ASSERT_TRUE(test::alike(out[i], expected(sources, i, op))) << name(op) << ", element " << i;
    }
  }
}

template <class T>
class CombineTypes : public testing::Test {};
TYPED_TEST_SUITE(CombineTypes, test::ElementTypes);

// Random bits are of every kind of float, and overflow integers. 0 to 130: with and without rests.
TYPED_TEST(CombineTypes, GivesTheBitsOfPlainArithmetic) {
  std::mt19937_64 random(11);
  for (const int count : {1, 2, 3, 8}) {
    for (const std::size_t n : {0, 1, 7, 16, 63, 130, 3001}) {
      std::vector<std::vector<TypeParam>> sources;
      for (int s = 0; s < count; ++s) sources.push_back(test::random_bits<TypeParam>(n, random));
      check(sources);
    }
  }
}

// Every pair of zeros of both signs, NaN, infinities, subnormals and others, thrice.
template <class T>
std::vector<std::vector<T>> special_pairs() {
  const float special[] = {0.f,      -0.f,      1.f,    -1.f,    NAN,
                           INFINITY, -INFINITY, 1e-40f, -1e-40f, 65519.f};
  std::vector<std::vector<T>> sources(2);
  for (const float a : special) {
    for (const float b : special) {
      for (int i = 0; i < 3; ++i) sources[0].push_back(static_cast<T>(a));
      for (int i = 0; i < 3; ++i) sources[1].push_back(static_cast<T>(b));
    }
  }
  return sources;
}

TYPED_TEST(CombineTypes, TreatsZerosOfBothSignsNanAndInfinityAsPlainArithmeticDoes) {
  if constexpr (!std::is_integral_v<TypeParam>) check(special_pairs<TypeParam>());
}

// Every 16-bit pattern alone: converted to float and back.
TEST(Combine, ConvertsEvery16BitFloat) {
  std::vector<half> halves(65536);
  std::vector<bfloat16> bfloats(65536);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    halves[bits].bits = bfloats[bits].bits = static_cast<std::uint16_t>(bits);
  }
  check(std::vector<std::vector<half>>{halves});
  check(std::vector<std::vector<bfloat16>>{bfloats});
}

TEST(Combine, TakesBuffersAtAnyAlignment) {
  std::vector<std::byte> a(1 + 100 * sizeof(double)), b(3 + 100 * sizeof(double));
  for (std::size_t i = 0; i < 100; ++i) {
    const double x = static_cast<double>(i), y = 1;
    std::memcpy(a.data() + 1 + i * sizeof(x), &x, sizeof(x));
    std::memcpy(b.data() + 3 + i * sizeof(y), &y, sizeof(y));
  }
  const std::byte* const sources[] = {a.data() + 1, b.data() + 3};
  Combine(DType::kFloat64, ReduceOp::kSum)(a.data() + 1, sources, 2, 100);
  for (std::size_t i = 0; i < 100; ++i) {
    double x = 0;
    std::memcpy(&x, a.data() + 1 + i * sizeof(x), sizeof(x));
    ASSERT_EQ(x, static_cast<double>(i) + 1);
  }
}

// Where `out` and the sources lie: elements behind a multiple of 16 bytes, sources in turns.
struct Phases {
  std::size_t out;
  std::size_t sources[2];
};

// Combines on the device what `sources` hold, into one of them or elsewhere, and compares.
template <class T>
void check_on_device(const std::vector<std::vector<T>>& sources, ReduceOp op, const Phases& phases,
                     bool in_place) {
  const std::size_t n = sources[0].size(), count = sources.size();
  std::vector<test::DeviceArray<T>> arrays;
  std::vector<ConstView> views;
  std::vector<const std::byte*> hosts;
  arrays.reserve(count + 1);
  for (std::size_t s = 0; s < count; ++s) {
    arrays.emplace_back(sources[s], phases.sources[s % 2]);
    views.push_back(arrays[s].view());
    hosts.push_back(reinterpret_cast<const std::byte*>(sources[s].data()));
  }
  arrays.emplace_back(std::vector<T>(n), phases.out);
  test::DeviceArray<T>& out = in_place ? arrays.front() : arrays.back();
  const std::vector<double> weights(kWeights, kWeights + count);
  const Stream stream;
  if (op == ReduceOp::kWeightedSum)
    weighted_sum_on_device(out.view(), views, weights, stream);
  else
    combine_on_device(out.view(), views, op, stream);
  std::vector<T> due(n);
  Combine(dtype_of<T>, op)(reinterpret_cast<std::byte*>(due.data()), hosts.data(),
                           static_cast<int>(count), n, kWeights);
  EXPECT_EQ(test::first_difference(out.values(stream), due), n)
      << name(op) << " of " << count << ", phases " << phases.out << ", " << phases.sources[0]
      << ", " << phases.sources[1] << (in_place ? ", in place" : "");
  EXPECT_TRUE(out.guarded());
}

// 0 to 130: with few packs or none. Phases: straight; alike; each otherwise; a whole pack off.
TYPED_TEST(CombineTypes, GivesTheBitsOfTheCpuOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(12);
  for (const Phases& phases : {Phases{0, {0, 0}}, Phases{3, {3, 3}}, Phases{0, {1, 2}},
                               Phases{1, {0, 15}}, Phases{7, {7, 6}}}) {
    for (const int count : {1, 2, 5}) {
      for (const std::size_t n : {0, 1, 7, 63, 130, 5003}) {
        std::vector<std::vector<TypeParam>> sources;
        for (int s = 0; s < count; ++s) sources.push_back(test::random_bits<TypeParam>(n, random));
        for (const ReduceOp op : kOps) {
          if (op == ReduceOp::kWeightedSum && std::is_integral_v<TypeParam>) continue;
          check_on_device(sources, op, phases, count == 2);
        }
      }
    }
  }
}

TYPED_TEST(CombineTypes, TreatsZerosOfBothSignsNanAndInfinityOnADeviceAsOnTheCpu) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  if constexpr (!std::is_integral_v<TypeParam>) {
    for (const ReduceOp op : kOps)
      check_on_device(special_pairs<TypeParam>(), op, {0, {0, 0}}, false);
  }
}

// More packs than threads: some take several.
TEST(Combine, GoesRoundLongBuffersOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  std::mt19937_64 random(13);
  const std::size_t n = 4 * 2048 * 256 + 1001;
  check_on_device<float>({test::random_bits<float>(n, random), test::random_bits<float>(n, random)},
                         ReduceOp::kSum, {1, {2, 1}}, false);
}

// Counts and offsets beyond 32 bits. The first element and the last 8 are taken one by one.
TEST(Combine, TakesMoreThanTwoToThe31ElementsOnADevice) {
  if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  if (!test::device_has_room()) GTEST_SKIP() << "less than 20 GiB of device memory are free";
  const std::size_t n = (std::size_t{1} << 31) + 9;
  std::vector<std::int8_t> values(n + 15);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int8_t>(i * 7 >> 3);
  const Stream stream;
  const DeviceBuffer from(values.size()), to(values.size());
  const View all = from.view(values.size(), DType::kInt8), out = to.view(n + 15, DType::kInt8);
  motley::copy(all, values, stream);
  const ConstView sources[] = {all.slice(15, n), all.slice(15, n)};
  combine_on_device(out.slice(15, n), sources, ReduceOp::kSum, stream);
  std::vector<std::int8_t> result(n);
  motley::copy(result, out.slice(15, n), stream);
  synchronize(stream);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < n; ++i)
    wrong += result[i] != static_cast<std::int8_t>(2 * values[15 + i]);
  EXPECT_EQ(wrong, 0u);
}

// All alignments of both ends, against what lies around.
TEST(CopyStream, CopiesWhatItShallAndNothingElse) {
  std::vector<std::byte> from(600);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i);
  for (std::size_t begin = 0; begin < 66; ++begin) {
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 200, 400}) {
      std::vector<std::byte> to(600, std::byte{0xee});
      copy_stream(to.data() + begin, from.data() + 5, bytes);
      streams_done();
      for (std::size_t i = 0; i < to.size(); ++i) {
        const bool inside = i >= begin && i < begin + bytes;
        ASSERT_EQ(to[i], inside ? from[i - begin + 5] : std::byte{0xee}) << i;
      }
    }
  }
}

}  // namespace
}  // namespace motley
