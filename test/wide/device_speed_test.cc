// On a GPU: by batches the engine for devices learns the CPU's model, and so many rows a second,
// beside the CPU. Labelled gpu; skipped where there is none.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/device.h"
#include "test/wide/skewed_rows.h"
#include "wide/device/engine.h"
#include "wide/model.h"

namespace motley::wide {
namespace {

struct Case {
  ModelKind kind;
  int factors;
};

class DeviceSpeed : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceSpeed,
                         testing::Values(Case{ModelKind::kLogistic, 1}, Case{ModelKind::kFm, 8},
                                         Case{ModelKind::kFm, 16}, Case{ModelKind::kFfm, 4},
                                         Case{ModelKind::kFwfm, 8}),
                         [](const auto& i) {
                           return name(i.param.kind) + std::to_string(i.param.factors);
                         });

struct Learnt {
  std::vector<float> state;
  double loss = 0, rows_a_second = 0;  // of the last of the epochs
};

Learnt learnt(Flow& flow, const Model& model, const Samples& samples, std::size_t batch_rows) {
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  Learnt out{.state{model.weights().begin(), model.weights().end()}};
  for (int epoch = 0; epoch < 2; ++epoch) {
    const TimePoint begin = Clock::real().now();
    out.loss = flow.train(samples, rows, {.l2 = 2e-5f, .batch_rows = batch_rows}, out.state);
    out.rows_a_second = static_cast<double>(rows.size()) / to_seconds(Clock::real().now() - begin);
  }
  return out;
}

TEST_P(DeviceSpeed, LearnsWhatTheCpuDoesAndTellsHowFast) {
  const Dataset data =
      test::skewed_rows({.rows = 65'536, .fields = 39, .features = 4, .growth = 1.2, .skew = 6});
  const Model model = Model::of({.kind = GetParam().kind, .factors = GetParam().factors}, data);
  const Samples samples = model.prepare(data);
  const auto on_cpu = make_flow(model.options(), model.layout());
  const auto on_device = make_device_flow(model.options(), model.layout());
  const Learnt cpu = learnt(*on_cpu, model, samples, 8192);
  const Learnt device = learnt(*on_device, model, samples, 8192);
  const Learnt by_row = learnt(*on_device, model, samples, 1);
  std::printf("thousand rows/s: CPU by batches %.0f; device by batches %.0f, row by row %.0f\n",
              cpu.rows_a_second / 1e3, device.rows_a_second / 1e3, by_row.rows_a_second / 1e3);
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < cpu.state.size(); ++i) {
    const auto x = static_cast<double>(device.state[i]), y = static_cast<double>(cpu.state[i]);
    sum += (x - y) * (x - y);
    norm += y * y;
  }
  EXPECT_LT(std::sqrt(sum / norm), 1e-5);
  EXPECT_NEAR(device.loss, cpu.loss, 1e-5 * cpu.loss);
  std::printf("loss: CPU by batches %.5f, device row by row %.5f\n", cpu.loss, by_row.loss);
  EXPECT_TRUE(std::isfinite(by_row.loss));
}

}  // namespace
}  // namespace motley::wide
