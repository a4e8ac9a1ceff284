// Models of numbers so large that their sum is infinite, though their average is none: it comes out
// right under every weighting, payload and way to it, and no model counts as one of no numbers.
#include <cmath>
#include <limits>

#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

enum class Way : std::uint8_t { kWhole, kAnnounced, kBegun };

struct Large {
  const char* name;
  PartialOptions options{};
  Way way = Way::kWhole;
  DType dtype = DType::kFloat32;
  double tolerance = 1e-6;  // of the largest number
};

double most_of(DType dtype) {
  if (dtype == DType::kFloat64) return std::numeric_limits<double>::max();
  return dtype == DType::kBFloat16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}

// In parts of the largest number, what `rank` has at element i: the same as the others; all there
// is; of unlike signs, so that the sum of some is infinite, but not that of all; large on rank 2
// alone, of which the others must be told. Small in the first step.
double brought(int rank, std::size_t i, int step) {
  const double by_kind[] = {0.9, 1, rank == 1 ? -0.8 : 0.9, rank == 2 ? 0.9 : 0.001};
  return step == 0 ? 0.001 * rank : by_kind[i % 4];
}

void fill(View model, int rank, int step) {
  for (std::size_t i = 0; i < model.count; ++i) {
    const double x = brought(rank, i, step) * most_of(model.dtype);
    if (model.dtype == DType::kFloat64) model.as<double>()[i] = x;
    if (model.dtype == DType::kFloat32) model.as<float>()[i] = static_cast<float>(x);
    if (model.dtype == DType::kBFloat16) model.as<bfloat16>()[i] = bfloat16(static_cast<float>(x));
  }
}

double value(View model, std::size_t i) {
  if (model.dtype == DType::kFloat64) return model.as<double>()[i];
  if (model.dtype == DType::kFloat32) return static_cast<double>(model.as<float>()[i]);
  return static_cast<double>(static_cast<float>(model.as<bfloat16>()[i]));
}

// Announced, or begun, this rank knows its group before it has a model: while the others keep a
// rank waiting, the group may go on without it.
PartialResult make_step(Communicator& comm, PartialReducer& reducer, View model, int step,
                        Way way) {
  if (way == Way::kWhole) return reducer.average(model, step);
  const TimePoint patience = comm.clock().now() + seconds(0.5);
  if (way == Way::kAnnounced) reducer.announce(step, seconds(0.002));
  if (way == Way::kBegun) {
    reducer.begin(model, step, seconds(0.002));
    reducer.ready(model.count / 2, model.count - model.count / 2);
  }
  while (!comm.control()->announced_group() && comm.clock().now() < patience)
    std::this_thread::yield();
  if (way == Way::kAnnounced) return reducer.average(model, step);
  reducer.ready(0, model.count / 2);
  return reducer.finish();
}

// What each member's model counts in that of this rank.
std::vector<double> weights_of(int rank, const PartialResult& result,
                               const PartialOptions& options) {
  if (!options.weighting.damped) return {result.weights.begin(), result.weights.end()};
  const auto p = static_cast<std::ptrdiff_t>(result.group.size());
  const auto me = std::ranges::find(result.group, rank) - result.group.begin();
  const std::vector<double> matrix = damped(result.weights);
  return {matrix.begin() + me * p, matrix.begin() + (me + 1) * p};
}

// The average of element i, if the members told by `first_step`, a bit each, make their first step.
double average_of(const PartialResult& result, const std::vector<double>& weights, std::size_t i,
                  unsigned first_step) {
  double sum = 0;
  for (std::size_t j = 0; j < result.group.size(); ++j)
    sum += weights[j] * brought(result.group[j], i, (first_step >> j & 1U) != 0 ? 0 : 1);
  return sum;
}

// The members that make their first step. One that came too late for its group meets others that
// are further by now, so these are sought; where none fit, those of equal steps are said.
unsigned first_steps(const PartialResult& result, const std::vector<double>& weights, View model,
                     const Large& test, int step) {
  const auto all = (1U << result.group.size()) - 1;
  const auto fits = [&](unsigned members) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double got = value(model, i) / most_of(test.dtype);
      if (!(std::abs(got - average_of(result, weights, i, members)) <= test.tolerance))
        return false;
    }
    return true;
  };
  if (test.way != Way::kWhole)
    for (unsigned members = 0; members <= all; ++members)
      if (fits(members)) return members;
  return step == 0 ? all : 0;
}

class LargeModels : public testing::TestWithParam<Large> {};

TEST_P(LargeModels, HaveAnAverageWhereverItIsANumber) {
  const Large& test = GetParam();
  run(3, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, test.options);
    std::vector<double> memory(1001);
    const View model(reinterpret_cast<std::byte*>(memory.data()), memory.size(), test.dtype);
    for (int step = 0; step < 3; ++step) {
      fill(model, comm.rank(), step);
      const int count = step * (comm.rank() + 1);
      const PartialResult result = make_step(comm, reducer, model, count, test.way);
      EXPECT_FALSE(result.was_not_finite);
      if (test.way == Way::kWhole) {
        EXPECT_THAT(result.group, ElementsAre(0, 1, 2));
      }
      EXPECT_THAT(result.weights, testing::SizeIs(result.healed ? 0 : result.group.size()));
      if (result.healed) continue;  // with an average of which it does not know the weights
      const std::vector<double> weights = weights_of(comm.rank(), result, test.options);
      const unsigned first = first_steps(result, weights, model, test, step);
      for (std::size_t i = 0; i < model.count; ++i)
        ASSERT_NEAR(value(model, i) / most_of(test.dtype), average_of(result, weights, i, first),
                    test.tolerance)
            << step << ", " << i;
    }
    reducer.leave();
  });
}

const Weighting kStale{.rule = WeightRule::kExponential, .lambda = 0.5};
const Weighting kDamped{.rule = WeightRule::kExponential, .lambda = 0.5, .damped = true};

INSTANTIATE_TEST_SUITE_P(
    Ways, LargeModels,
    testing::Values(Large{"uniform", {.group_size = 3}},
                    Large{"deterministic", {.group_size = 3, .deterministic = true}},
                    Large{"weighted", {.group_size = 3, .weighting = kStale}},
                    Large{"damped", {.group_size = 3, .weighting = kDamped}},
                    Large{"float64", {.group_size = 3}, Way::kWhole, DType::kFloat64},
                    Large{"bfloat16", {.group_size = 3}, Way::kWhole, DType::kBFloat16, 0x1p-8},
                    Large{"short",
                          {.group_size = 3, .payload = Payload::kBFloat16},
                          Way::kWhole,
                          DType::kFloat32,
                          0x1p-7},
                    Large{"shortest",
                          {.group_size = 3, .payload = Payload::kInt8},
                          Way::kWhole,
                          DType::kFloat32,
                          0.02},
                    Large{"announced", {.group_size = 3}, Way::kAnnounced},
                    Large{"pieces", {.group_size = 3, .piece_bytes = 400}},
                    Large{"begun", {.group_size = 3, .piece_bytes = 400}, Way::kBegun},
                    Large{"begun_weighted",
                          {.group_size = 3, .weighting = kStale, .piece_bytes = 400},
                          Way::kBegun}),
    [](const auto& test) { return std::string(test.param.name); });

// Ten times a tenth of the largest float is infinite, rounded.
TEST(PartialReduce, BoundsWhatRoundingMakesInfinite) {
  run(10, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 10, .deterministic = true});
    const float most = std::numeric_limits<float>::max();
    std::vector<float> model = {most, -most};
    EXPECT_THAT(reducer.average(model, 0).group, testing::SizeIs(10));
    EXPECT_THAT(model, ElementsAre(most, -most));
  });
}

}  // namespace
}  // namespace motley::test
