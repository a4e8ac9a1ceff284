// Experts on an emulated device, whose products cuBLAS's stand-in does, equal those of the CPU:
// rows, gradients of rows and of parameters, for every form, activation and type, empty and split
// segments, slots without rows, and outputs whose bias is added elsewhere.
#include "moe/device_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "test/support/cublas_stand_in.h"
#include "test/support/device_array.h"
#include "test/support/errors.h"

namespace motley::moe {
namespace {

using test::DeviceArray;
using test::expect_error;
using Floats = std::vector<float>;

template <class T>
Floats random_floats(std::size_t count, std::mt19937_64& random, float scale = 1) {
  Floats values;
  for (std::size_t i = 0; i < count; ++i) {
    const float x = (static_cast<float>(random() % 2001) / 1000 - 1) * scale;
    values.push_back(static_cast<float>(static_cast<T>(x)));  // what T has
  }
  return values;
}

template <class T>
DeviceArray<T> on_device(const Floats& values, std::size_t phase = 0) {
  std::vector<T> elements;
  for (const float x : values) elements.push_back(static_cast<T>(x));
  return DeviceArray<T>(elements, phase);
}

struct Case {
  ExpertShape shape;
  std::vector<ExpertSegment> segments;
  std::size_t rows = 0, slots = 0;
  std::vector<OutputBias> bias = {};
};

// What a step gives: everything in the order of rows and slots.
struct Result {
  Floats y, dx, gradients;
};

struct Inputs {
  Floats x, dy, parameters;
};

Result on_the_cpu(const Case& it, const Inputs& in) {
  Workers workers;
  const ExpertCompute compute(it.shape, workers, it.bias);
  const std::size_t slot = it.shape.slot_count();
  Result out{Floats(in.x.size(), 7), Floats(in.x.size(), 7), Floats(in.parameters.size(), 7)};
  std::vector<std::span<const float>> slots;
  std::vector<std::span<float>> gradients;
  for (std::size_t i = 0; i < it.slots; ++i) {
    slots.push_back(std::span(in.parameters).subspan(i * slot, slot));
    gradients.push_back(std::span(out.gradients).subspan(i * slot, slot));
  }
  ExpertSaved saved;
  compute.reserve(saved, it.rows);
  compute.forward({slots, it.segments, in.x, out.y}, saved);
  compute.backward_rows({slots, it.segments, in.dy, out.dx}, saved);
  compute.backward_weights({it.segments, in.x, in.dy, gradients}, saved);
  return out;
}

template <class T>
Floats floats_of(DeviceArray<T>& array, const Stream& stream) {
  Floats values;
  for (const T x : array.values(stream)) values.push_back(static_cast<float>(x));
  EXPECT_TRUE(array.guarded());
  return values;
}

template <class T>
Result on_a_device(const Case& it, const Inputs& in) {
  const Stream stream;
  DeviceExpertCompute compute(it.shape, dtype_of<T>, it.bias);
  const std::size_t slot = it.shape.slot_count();
  const Floats sevens(in.x.size(), 7);
  const DeviceArray<T> x = on_device<T>(in.x, 1), dy = on_device<T>(in.dy);
  const DeviceArray<T> parameters = on_device<T>(in.parameters, 3);
  DeviceArray<T> y = on_device<T>(sevens), dx = on_device<T>(sevens, 1);
  DeviceArray<T> gradient = on_device<T>(Floats(in.parameters.size(), 7));
  std::vector<ConstView> slots;
  std::vector<View> gradients;
  for (std::size_t i = 0; i < it.slots; ++i) {
    slots.push_back(parameters.view().slice(i * slot, slot));
    gradients.push_back(gradient.view().slice(i * slot, slot));
  }
  DeviceExpertSaved saved;
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second on memory that has been used
    compute.reserve(saved, it.rows);
    compute.forward({slots, it.segments, x.view(), y.view()}, saved, stream);
    compute.backward_rows({slots, it.segments, dy.view(), dx.view()}, saved, stream);
    compute.backward_weights({it.segments, x.view(), dy.view(), gradients}, saved, stream);
  }
  return {floats_of(y, stream), floats_of(dx, stream), floats_of(gradient, stream)};
}

// Within `bound` of the largest number there is.
void expect_close(const Floats& got, const Floats& want, double bound, const char* what) {
  ASSERT_EQ(got.size(), want.size());
  float most = 1;
  for (const float x : want) most = std::max(most, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], bound * static_cast<double>(most)) << what << ' ' << i;
}

template <class T>
class DeviceExperts : public testing::Test {};
using Elements = testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(DeviceExperts, Elements);

TYPED_TEST(DeviceExperts, ComputeWhatTheCpuDoes) {
  using T = TypeParam;
  // 16-bit floats are rounded between products: a few times half of 2^-10 and 2^-7.
  const double bound = sizeof(T) == 4 ? 1e-5 : std::is_same_v<T, half> ? 4e-3 : 3e-2;
  std::mt19937_64 random(21);
  // Slot 0 in three segments, slot 1 without rows, slot 2 without a segment, slot 3; one row and
  // more than a block's; rows that are in no segment; no rows at all.
  const std::vector<ExpertSegment> split = {{0, 0, 4}, {1, 4, 0}, {0, 4, 1}, {3, 7, 9}, {0, 16, 2}};
  std::vector<Case> cases;
  for (const ExpertForm form : {ExpertForm::kPlain, ExpertForm::kGated}) {
    for (const Activation activation : {Activation::kRelu, Activation::kGelu, Activation::kSilu}) {
      cases.push_back({{5, 7, activation, form}, split, 18, 4});
    }
    cases.push_back({{33, 40, Activation::kGelu, form},
                     {{0, 0, 70}, {1, 70, 3}},
                     73,
                     2,
                     {OutputBias::kElsewhere, OutputBias::kAdded}});
    cases.push_back({{3, 4, Activation::kGelu, form}, {}, 0, 2});
  }
  for (const Case& it : cases) {
    SCOPED_TRACE(testing::Message() << it.shape.width << " by " << it.shape.hidden << ", "
                                    << it.rows << " rows, form " << static_cast<int>(it.shape.form)
                                    << ", activation " << static_cast<int>(it.shape.activation));
    const std::size_t numbers = it.rows * static_cast<std::size_t>(it.shape.width);
    const Inputs in{random_floats<T>(numbers, random), random_floats<T>(numbers, random),
                    random_floats<T>(it.slots * it.shape.slot_count(), random, 0.5f)};
    const Result want = on_the_cpu(it, in), got = on_a_device<T>(it, in);
    expect_close(got.y, want.y, bound, "y");
    expect_close(got.dx, want.dx, bound, "dx");
    expect_close(got.gradients, want.gradients, bound, "gradient");
  }
}

// All experts at once, whatever their rows: not one call for each.
TEST(DeviceExpertsCall, CublasOnceForAllExperts) {
  std::mt19937_64 random(22);
  Case it{{8, 8, Activation::kGelu, ExpertForm::kGated}, {}, 40, 8};
  for (std::size_t slot = 0; slot < 8; ++slot) it.segments.push_back({slot, 5 * slot, 5});
  const Inputs in{random_floats<float>(320, random), random_floats<float>(320, random),
                  random_floats<float>(8 * it.shape.slot_count(), random)};
  const test::CublasUse before = test::cublas_use();
  on_a_device<float>(it, in);
  const test::CublasUse after = test::cublas_use();
  EXPECT_EQ(after.calls - before.calls, 2 * 9);  // three products each way and for parameters
  EXPECT_EQ(after.products - before.products, 2 * 9 * 8);
  EXPECT_EQ(after.handles, before.handles);
}

TEST(DeviceExpertsCall, RefusesWhatDoesNotFit) {
  const ExpertShape shape{.width = 2, .hidden = 3};
  expect_error(ErrorCode::kInvalid, {"float64"},
               [&] { DeviceExpertCompute(shape, DType::kFloat64); });
  expect_error(ErrorCode::kInvalid, {"hidden 0"},
               [&] { DeviceExpertCompute({.width = 2}, DType::kFloat32); });
  const Stream stream;
  DeviceExpertCompute compute(shape, DType::kFloat32);
  DeviceExpertSaved saved;
  compute.reserve(saved, 2);
  DeviceArray<float> rows(Floats(8)), slot(Floats(shape.slot_count()));
  const View two = rows.view().slice(0, 4);
  const std::vector<ConstView> slots = {slot.view()};
  const std::vector<ExpertSegment> segments = {{0, 0, 2}};
  Floats host(4);
  const auto refuses = [&](const DeviceExpertRows& call, const std::vector<std::string>& facts) {
    expect_error(ErrorCode::kInvalid, facts, [&] { compute.forward(call, saved, stream); });
  };
  refuses({slots, segments, two, rows.view()}, {"the output has 8", "4"});
  refuses({slots, segments, two, View(host)}, {"host memory"});
  refuses({slots, segments, two, {two.data, 4, DType::kFloat16, Memory::kDevice}}, {"float16"});
  refuses({{}, segments, two, two}, {"slot 0", "0 slots"});
  const std::vector<ExpertSegment> beyond = {{0, 1, 2}};
  refuses({slots, beyond, two, two}, {"rows 1 to 3", "2 rows"});
  refuses({slots, segments, rows.view(), rows.view()}, {"room for 6", "4 rows"});
  const std::vector<ConstView> short_slot = {slot.view().slice(0, 3)};
  refuses({short_slot, segments, two, two}, {"a slot has 3"});
}

TEST(DeviceExpertsCall, SaysWhatCublasSays) {
  const ExpertShape shape{.width = 2, .hidden = 3};
  const Stream stream;
  DeviceExpertCompute compute(shape, DType::kFloat32);
  DeviceExpertSaved saved;
  compute.reserve(saved, 2);
  DeviceArray<float> x(Floats(4)), y(Floats(4)), slot(Floats(shape.slot_count()));
  const std::vector<ConstView> slots = {slot.view()};
  const std::vector<ExpertSegment> segments = {{0, 0, 2}};
  const DeviceExpertRows rows{slots, segments, x.view(), y.view()};
  test::fail_next_product();
  expect_error(ErrorCode::kIo, {"cuBLAS", "execution failed", "multiplying"},
               [&] { compute.forward(rows, saved, stream); });
  EXPECT_NO_THROW(compute.forward(rows, saved, stream));
}

}  // namespace
}  // namespace motley::moe
