// Workers in step make the update that one worker would make on the whole batch: however the batch
// is divided, in double precision, so that 1e-12 is close; and in 16 bits.
#include "runtime/gradient_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <vector>

#include "comm/local.h"
#include "runtime/sharding.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

constexpr std::int64_t kSamples = 90;
constexpr std::size_t kFeatures = 3;

// Sample i of a linear regression: y = x . {1, -2, 0.5} + 0.25.
std::vector<double> features(std::int64_t i) {
  const auto u = static_cast<double>(i);
  return {std::sin(u), std::cos(1.7 * u), std::sin(0.3 * u + 1)};
}
double target(std::int64_t i) {
  const std::vector<double> x = features(i);
  return x[0] - 2 * x[1] + 0.5 * x[2] + 0.25;
}

Parameters line(DType dtype) { return Parameters({{"weight", {kFeatures}}, {"bias", {}}}, dtype); }

// Adds weight times the gradient of the mean of (prediction - y)^2 / 2; returns that mean.
template <class T>
double backward(std::span<const std::int64_t> samples, std::span<const T> w, std::span<T> g,
                double weight) {
  double loss = 0;
  std::vector<double> sums(kFeatures + 1);
  for (const std::int64_t i : samples) {
    const std::vector<double> x = features(i);
    double error = static_cast<float>(w[kFeatures]) - target(i);
    for (std::size_t j = 0; j < kFeatures; ++j) error += x[j] * static_cast<float>(w[j]);
    for (std::size_t j = 0; j < kFeatures; ++j) sums[j] += error * x[j];
    sums[kFeatures] += error;
    loss += error * error / 2;
  }
  const auto n = static_cast<double>(samples.size());
  for (std::size_t j = 0; j <= kFeatures; ++j)
    g[j] = T(static_cast<float>(static_cast<float>(g[j]) + weight * sums[j] / n));
  return loss / n;
}
template <>
double backward<double>(std::span<const std::int64_t> samples, std::span<const double> w,
                        std::span<double> g, double weight) {
  double loss = 0;
  const auto n = static_cast<double>(samples.size());
  for (const std::int64_t i : samples) {
    const std::vector<double> x = features(i);
    double error = w[kFeatures] - target(i);
    for (std::size_t j = 0; j < kFeatures; ++j) error += x[j] * w[j];
    for (std::size_t j = 0; j < kFeatures; ++j) g[j] += weight / n * error * x[j];
    g[kFeatures] += weight / n * error;
    loss += error * error / 2;
  }
  return loss / n;
}

struct Outcome {
  std::vector<double> parameters;
  std::vector<double> losses;
};

struct Run {
  int workers = 1;
  std::int64_t micro = kSamples;  // samples of a micro-batch, at most
  std::int64_t batch = 40;        // 40, 40, 10: the last of an epoch is shorter
  int epochs = 8;
  double clip_norm = 0;
};

Outcome trained(const Run& run) {
  Outcome outcome;
  run_local(run.workers, [&](Communicator& comm) {
    Parameters parameters = line(DType::kFloat64);
    Adam optimizer(parameters.values(), {.learning_rate = 0.1});
    GradientTrainer trainer(comm, parameters, optimizer,
                            {.learning_rate = {.base = 0.05, .warmup_samples = 100},
                             .clip_norm = run.clip_norm,
                             .buckets = {.bytes = 8}});
    GlobalBatches batches(comm.rank(), comm.size(),
                          {.samples = kSamples, .batch = run.batch, .seed = 2});
    while (batches.epoch() < run.epochs) {
      const GlobalBatches::Part part = batches.next();
      std::vector<std::int64_t> sizes;
      for (auto left = std::ssize(part.samples); left > 0; left -= sizes.back())
        sizes.push_back(std::min<std::int64_t>(left, run.micro));
      std::size_t first = 0;
      const StepReport report =
          trainer.step({.sizes = sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
            const auto size =
                static_cast<std::size_t>(sizes[static_cast<std::size_t>(micro.index)]);
            const auto samples = part.samples.subspan(first, size);
            first += size;
            const double loss = backward<double>(samples, parameters.values().as<double>(),
                                                 parameters.gradients().as<double>(), micro.weight);
            if (micro.ready) micro.ready(kFeatures, 1);  // the rest is taken as ready afterwards
            return loss;
          });
      EXPECT_TRUE(report.applied);
      if (comm.rank() == 0) outcome.losses.push_back(report.loss);
    }
    EXPECT_EQ(trainer.samples(), run.epochs * kSamples);
    if (comm.rank() != 0) return;
    const auto values = parameters.values().as<double>();
    outcome.parameters.assign(values.begin(), values.end());
  });
  return outcome;
}

TEST(GradientTrainer, MakesTheStepsOfOneWorkerHoweverTheBatchIsDivided) {
  const Outcome one = trained({});
  EXPECT_LT(one.losses.back(), one.losses.front() / 2) << "it learns";
  // 7 does not divide the batches; 16 workers leave some with no sample of the last one.
  for (const int workers : {1, 3, 4, 16}) {
    for (const std::int64_t micro : {kSamples, std::int64_t{7}}) {
      const Outcome other = trained({.workers = workers, .micro = micro});
      SCOPED_TRACE(testing::Message() << workers << " workers, micro-batches of " << micro);
      EXPECT_THAT(other.parameters, Pointwise(DoubleNear(1e-12), one.parameters));
      EXPECT_THAT(other.losses, Pointwise(DoubleNear(1e-12), one.losses));
    }
  }
}

TEST(GradientTrainer, ClipsTheGradientOfTheWholeBatch) {
  const Outcome one = trained({.clip_norm = 0.3});
  EXPECT_NE(one.parameters, trained({}).parameters);
  EXPECT_THAT(trained({.workers = 3, .clip_norm = 0.3}).parameters,
              Pointwise(DoubleNear(1e-12), one.parameters));
}

TEST(GradientTrainer, LeavesOutAStepThatIsNotFinite) {
  run_local(2, [](Communicator& comm) {
    Parameters parameters = line(DType::kFloat64);
    Sgd optimizer(parameters.values(), {.learning_rate = 1});
    GradientTrainer trainer(comm, parameters, optimizer, {});
    const std::vector<std::int64_t> sizes = {1};
    for (const bool bad : {true, false}) {
      const StepReport report =
          trainer.step({.sizes = sizes, .batch = 2}, [&](const MicroBatch& micro) {
            const double g = bad && comm.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
            trainer.gradients().as<double>()[0] += micro.weight * g;
            return 0.0;
          });
      EXPECT_EQ(report.applied, !bad);
      EXPECT_EQ(parameters.values().as<double>()[0], bad ? 0 : -0.1) << "the default rate";
    }
    EXPECT_EQ(trainer.samples(), 4) << "counted, though the step was left out";
  });
}

// In bfloat16 a gradient has 8 bits, and the float32 parameters come near all the same.
TEST(GradientTrainer, LearnsIn16Bits) {
  for (const DType precision : {DType::kBFloat16, DType::kFloat16}) {
    run_local(3, [&](Communicator& comm) {
      Parameters parameters = line(DType::kFloat32);
      Sgd optimizer(parameters.values(), {.learning_rate = 0.1});
      GradientTrainer trainer(comm, parameters, optimizer,
                              {.learning_rate = {.base = 0.5}, .precision = precision});
      GlobalBatches batches(comm.rank(), comm.size(), {.samples = kSamples, .batch = 30});
      double loss = 1;
      int left_out = 0;
      while (batches.epoch() < 40) {
        const GlobalBatches::Part part = batches.next();
        const std::vector<std::int64_t> sizes = {std::ssize(part.samples)};
        const auto step = [&](const MicroBatch& micro) {
          if (precision == DType::kBFloat16) {
            return backward<bfloat16>(part.samples, trainer.values().as<bfloat16>(),
                                      trainer.gradients().as<bfloat16>(), micro.weight);
          }
          return backward<half>(part.samples, trainer.values().as<half>(),
                                trainer.gradients().as<half>(), micro.weight);
        };
        const StepReport report = trainer.step({.sizes = sizes, .batch = part.batch}, step);
        loss = report.loss;
        if (!report.applied) ++left_out;
      }
      EXPECT_LT(loss, 1e-4);
      EXPECT_LT(left_out, 10) << "the scale finds a value that fits";
      EXPECT_NEAR(parameters.values("bias").as<float>()[0], 0.25, 0.02);
    });
  }
}

TEST(GradientTrainer, SaysWhatIsWrong) {
  run_local(1, [](Communicator& comm) {
    Parameters parameters = line(DType::kFloat64);
    Sgd optimizer(parameters.values(), {});
    test::expect_error(ErrorCode::kInvalid, {"clip_norm", "-1"},
                       [&] { GradientTrainer(comm, parameters, optimizer, {.clip_norm = -1}); });
    test::expect_error(ErrorCode::kInvalid, {}, [&] {
      GradientTrainer(comm, parameters, optimizer, {.precision = DType::kFloat16});
    });
    GradientTrainer trainer(comm, parameters, optimizer, {});
    const std::vector<std::int64_t> sizes = {3, 4};
    const auto nothing = [](const MicroBatch&) { return 0.0; };
    test::expect_error(ErrorCode::kInvalid, {"7", "6"},
                       [&] { trainer.step({.sizes = sizes, .batch = 6}, nothing); });
    test::expect_error(ErrorCode::kInvalid, {"0 samples"},
                       [&] { trainer.step({.sizes = {}, .batch = 0}, nothing); });
    const auto throws = [](const MicroBatch& micro) -> double {
      if (micro.ready) micro.ready(0, kFeatures);
      throw Error(ErrorCode::kIo, "the disk is full");
    };
    test::expect_error(ErrorCode::kIo, {"disk"},
                       [&] { trainer.step({.sizes = sizes, .batch = 7}, throws); });
    EXPECT_EQ(trainer.samples(), 0);
    EXPECT_TRUE(trainer.step({.sizes = sizes, .batch = 7}, nothing).applied) << "a step anew";
  });
}

}  // namespace
}  // namespace motley::runtime
