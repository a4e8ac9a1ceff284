// Shows that parameters lie where their names say, and that a state lists what is added to it,
// once.
#include "runtime/parameter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runtime/state.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using test::expect_invalid;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::IsEmpty;

TEST(Parameters, LieOneAfterAnother) {
  Parameters model({{"weight", {2, 3}}, {"none", {0, 5}}, {"bias", {}}}, DType::kFloat32);
  EXPECT_EQ(model.count(), 7u);
  model.values("bias").as<float>()[0] = 5;
  model.gradients("weight").as<float>()[5] = 6;
  EXPECT_THAT(model.values().as<float>(), ElementsAre(0, 0, 0, 0, 0, 0, FloatEq(5)));
  EXPECT_THAT(model.gradients().as<float>(), ElementsAre(0, 0, 0, 0, 0, FloatEq(6), 0));
  EXPECT_EQ(model.values("none").count, 0u);
  model.zero_gradients();
  EXPECT_THAT(model.gradients().as<float>(), Each(0.0f));
  EXPECT_EQ(Parameters({}, DType::kFloat64).count(), 0u);
}

TEST(Parameters, RejectWrongNames) {
  expect_invalid([] { return Parameters({{"w", {1}}, {"w", {2}}}, DType::kFloat32); });
  Parameters model({{"weight", {2}}}, DType::kFloat32);
  expect_invalid([&] { return model.values("wieght"); });
}

TEST(State, ListsTheMemoryOfItsItemsInOrder) {
  Parameters model({{"weight", {2, 3}}, {"none", {0, 5}}}, DType::kFloat32);
  std::int64_t step = 7;
  State state;
  model.list(state);
  state.add("step", step, StatePolicy::kMaximum);
  ASSERT_EQ(state.items().size(), 3u);
  EXPECT_EQ(state.items()[0].name, "weight");
  EXPECT_THAT(state.items()[0].shape, ElementsAre(2, 3));
  EXPECT_EQ(state.items()[1].data.count, 0u);
  EXPECT_THAT(state.items()[2].shape, IsEmpty());
  EXPECT_EQ(state.size_bytes(), 6 * sizeof(float) + sizeof(std::int64_t));
  state.find("weight").data.as<float>()[4] = 5;
  EXPECT_EQ(model.values().as<float>()[4], 5);
  state.find("step").data.as<std::int64_t>()[0] = 8;
  EXPECT_EQ(step, 8);
}

TEST(State, AppendsUnderAPrefix) {
  double rate = 1;
  State one, both;
  one.add("rate", rate, StatePolicy::kAverage);
  both.append("first.", one);
  both.append("second.", one);
  EXPECT_EQ(both.find("second.rate").policy, StatePolicy::kAverage);
  EXPECT_THAT(both.items().front().name, "first.rate");
  both.append("again.", both);
  EXPECT_EQ(both.items().size(), 4u);
  EXPECT_EQ(State().size_bytes(), 0u);
}

TEST(State, RefusesNamesTwiceAndShapesThatDoNotFit) {
  std::vector<float> four(4);
  State state;
  state.add({"x", {2, 2}, four, StatePolicy::kAverage});
  test::expect_error(ErrorCode::kInvalid, {"\"x\""}, [&] {
    state.add({"x", {4}, four, StatePolicy::kSum});
  });
  test::expect_error(ErrorCode::kInvalid, {"\"y\"", "6", "4"}, [&] {
    state.add({"y", {2, 3}, four, StatePolicy::kSum});
  });
  expect_invalid([&] { state.add({"", {4}, four, StatePolicy::kSum}); });
  expect_invalid([&] { state.append("", state); });
  test::expect_error(ErrorCode::kInvalid, {"\"z\"", "x"}, [&] { state.find("z"); });
  EXPECT_EQ(state.items().size(), 1u);
}

}  // namespace
}  // namespace motley::runtime
