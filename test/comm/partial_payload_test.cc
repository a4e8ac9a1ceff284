// Partial-reduce whose members send each other short numbers: they end bitwise equal, with nothing
// lost for good and no more sent than said.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "comm/executor/lossy_average.h"
#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

class ShortPayload : public testing::TestWithParam<Payload> {
 protected:
  // Of the largest of an average's elements: the most that shortening one leaves out.
  double unit() const { return GetParam() == Payload::kBFloat16 ? 0x1p-9 : 0.5 / 127; }
};

std::vector<double> gathered(Communicator& comm, const std::vector<double>& own) {
  std::vector<double> all(own.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(own, all).wait();
  return all;
}

// Steps far below half a unit of short numbers, which alone would all be rounded away, 10,000
// times: the sum of models and remainders follows them but for the rounding of float32, and models
// stay within two units of what they are in full. 101: slices that are no multiples of a block.
TEST_P(ShortPayload, LosesNothingOverTenThousandRounds) {
  constexpr int kRounds = 10'000;
  run(3, [&](Communicator& comm, LocalControl&) {
    const std::size_t n = 101;
    const auto p = static_cast<double>(comm.size());
    LossyAverage lossy(comm, GetParam());
    const AveragePlan plan{.weights = {1 / p, 1 / p, 1 / p}};
    std::vector<float> model(n), average(n);
    for (std::size_t i = 0; i < n; ++i)
      model[i] = std::sin(static_cast<float>(i * (1 + comm.rank())));
    std::vector<double> moved(model.begin(), model.end());
    const Group group = Group::world(comm.size());
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < n; ++i) {
        const float before = model[i];
        model[i] += 1e-4F * static_cast<float>((i + static_cast<std::size_t>(comm.rank())) % 5);
        moved[i] += static_cast<double>(model[i]) - static_cast<double>(before);
      }
      lossy(group, plan, model, average, comm.clock().now() + seconds(60));
      lossy.commit();
      model = average;
    }
    std::vector<double> own(3 * n);
    for (std::size_t i = 0; i < n; ++i) {
      own[i] = static_cast<double>(model[i]) + static_cast<double>(lossy.remainder()[i]);
      own[n + i] = moved[i];
      own[2 * n + i] = static_cast<double>(model[i]);
    }
    const std::vector<double> all = gathered(comm, own);
    for (std::size_t i = 0; i < n; ++i) {
      double kept = 0, expected = 0;
      for (std::size_t rank = 0; rank < 3; ++rank) {
        kept += all[rank * 3 * n + i];
        expected += all[rank * 3 * n + n + i];
        ASSERT_EQ(all[rank * 3 * n + 2 * n + i], static_cast<double>(model[i])) << "not equal";
      }
      const double scale = 4;  // of the largest element in the end
      ASSERT_NEAR(kept, expected, 1e-3) << i;
      ASSERT_NEAR(static_cast<double>(model[i]), expected / p, 2 * scale * unit()) << i;
    }
  });
}

TEST_P(ShortPayload, KeepsEqualModelsEqual) {
  run(4, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2, .payload = GetParam()});
    std::vector<float> model(300, 0.1F);
    for (int step = 0; step < 50; ++step) reducer.average(model, step);
    reducer.leave();
    const auto [least, most] = std::minmax_element(model.begin(), model.end());
    EXPECT_EQ(*least, *most);
    EXPECT_NEAR(*least, 0.1, 0.2 * unit());
    std::vector<double> all = gathered(comm, {static_cast<double>(model[0])});
    EXPECT_THAT(all, testing::Each(all[0]));
  });
}

// Members end bitwise equal, near the mean; and each sent, so received, 2(P-1)/P of the model in
// short numbers.
TEST_P(ShortPayload, SendsAsLittleAsItSays) {
  run(4, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 4, .payload = GetParam()});
    const std::size_t n = 100'000;
    std::vector<float> model(n);
    for (std::size_t i = 0; i < n; ++i) {
      model[i] = static_cast<float>(comm.rank()) + static_cast<float>(i % 1000) / 1000;
    }
    const GroupTag before =
        comm.recorder().last_started() ? comm.recorder().last_started()->group : GroupTag{};
    EXPECT_THAT(reducer.average(model, 0).group, ElementsAre(0, 1, 2, 3));
    std::uint64_t received = 0;
    for (const CallRecord& call : comm.recorder().last()) {
      if (call.group.from_controller() && call.group != before) received += call.bytes;
    }
    const double element = GetParam() == Payload::kBFloat16 ? 2 : 1.03125;
    EXPECT_NEAR(static_cast<double>(received), 2 * 0.75 * n * element,
                0.01 * 2 * 0.75 * n * element);
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const double mean = 1.5 + static_cast<double>(i % 1000) / 1000;
      ASSERT_NEAR(static_cast<double>(model[i]), mean, 8 * unit());
      sum += static_cast<double>(model[i]) * static_cast<double>(i % 7);
    }
    EXPECT_THAT(gathered(comm, {sum}), testing::Each(sum));
  });
}

TEST_P(ShortPayload, LeavesOutWhatIsNoNumberAndTakesWhatIsLarge) {
  run(3, [&](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 3, .payload = GetParam()});
    std::vector<float> model(1000, comm.rank() == 0 ? 1.0F : 3.0F);
    if (comm.rank() == 1) model[500] = std::nanf("");
    EXPECT_EQ(reducer.average(model, 0).was_not_finite, comm.rank() == 1);
    for (const float x : model) ASSERT_NEAR(x, 2, 8 * unit());
    std::fill(model.begin(), model.end(), 3.4e38F);
    reducer.average(model, 1);
    for (const float x : model) ASSERT_TRUE(std::isfinite(x));
    reducer.average(model, 2);
    for (const float x : model) ASSERT_TRUE(std::isfinite(x));
  });
}

TEST_P(ShortPayload, TakesNoElementsAndRefusesWhatItCannotSend) {
  run(2, [&](Communicator& comm, LocalControl&) {
    expect_error(ErrorCode::kInvalid, "damped", [&] {
      PartialReducer(comm, {.group_size = 2, .weighting = {.damped = true}, .payload = GetParam()});
    });
    PartialReducer reducer(comm, {.group_size = 2, .payload = GetParam()});
    std::vector<double> wide(10);
    expect_error(ErrorCode::kInvalid, "float64", [&] { reducer.average(wide, 0); });
    std::vector<float> nothing;
    EXPECT_THAT(reducer.average(nothing, 1).group, ElementsAre(0, 1));
    std::vector<float> one = {static_cast<float>(comm.rank())};  // one slice is empty
    EXPECT_THAT(reducer.average(one, 2).group, ElementsAre(0, 1));
    EXPECT_NEAR(one[0], 0.5, unit());
  });
}

// Of sizes that take as many bytes as int8, or other ones; whoever differs, all are told.
TEST_P(ShortPayload, RefusesModelsOfDifferentSizes) {
  constexpr std::array<std::size_t, 3> kSizes[] = {
      {129, 128, 128}, {1000, 1000, 1001}, {1, 2, 3}, {300, 100, 300}};
  for (const auto& sizes : kSizes) {
    run(3, [&](Communicator& comm, LocalControl&) {
      PartialReducer reducer(comm, {.group_size = 3, .payload = GetParam()});
      std::vector<float> model(sizes[static_cast<std::size_t>(comm.rank())] + 1, 1.0F);
      const View all_but_last{std::span(model).first(model.size() - 1)};
      expect_error(ErrorCode::kMismatch, "rank ", [&] { reducer.average(all_but_last, 0); });
      EXPECT_THAT(model, testing::Each(1));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Payloads, ShortPayload,
                         testing::Values(Payload::kBFloat16, Payload::kInt8));

}  // namespace
}  // namespace motley::test
