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
#include "test/runtime/line_fit.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

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
      const StepReport report =
          trainer.step({.sizes = sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
            EXPECT_EQ(micro.size, sizes[static_cast<std::size_t>(micro.index)]);
            const double loss = backward(part.samples.subspan(micro.first, micro.size),
                                         parameters.values(), parameters.gradients(), micro.weight);
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

TEST(GradientTrainer, KeepsItsRunningValuesOverAStepThatIsLeftOut) {
  run_local(2, [](Communicator& comm) {
    Parameters parameters = line(DType::kFloat64);
    Sgd optimizer(parameters.values(), {.learning_rate = 1});
    double mean = 7;
    State running;
    running.add("mean", mean, StatePolicy::kAverage);
    GradientTrainer trainer(comm, parameters, optimizer, {.running = running});
    const std::vector<std::int64_t> sizes = {1};
    const double samples[] = {4, std::numeric_limits<double>::quiet_NaN(), 6};
    for (const double sample : samples) {
      const StepReport report =
          trainer.step({.sizes = sizes, .batch = 2}, [&](const MicroBatch& micro) {
            const double seen = comm.rank() == 1 ? sample : 0;
            mean = seen;
            trainer.gradients().as<double>()[0] += micro.weight * seen;
            return seen;
          });
      EXPECT_EQ(report.applied, std::isfinite(sample));
      EXPECT_EQ(mean, std::isfinite(sample) ? sample / 2 : 2) << "after " << sample;
    }
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
        const auto step = [&](const MicroBatch& micro) {
          return backward(part.samples, trainer.values(), trainer.gradients(), micro.weight);
        };
        const StepReport report = trainer.step({.sizes = part.sizes, .batch = part.batch}, step);
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
    double other = 0;
    std::int64_t count = 0;
    State running, twice;
    running.add("count", count, StatePolicy::kMaximum);
    twice.add("weight", other, StatePolicy::kMaximum);
    test::expect_error(ErrorCode::kInvalid, {"count"},
                       [&] { GradientTrainer(comm, parameters, optimizer, {.running = running}); });
    test::expect_error(ErrorCode::kInvalid, {"\"weight\""},
                       [&] { GradientTrainer(comm, parameters, optimizer, {.state = twice}); });
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
    GradientTrainer in_order(comm, parameters, optimizer, {.micro_batches = 3});
    test::expect_error(ErrorCode::kInvalid, {"2 micro-batches", "share 3"},
                       [&] { in_order.step({.sizes = sizes, .batch = 7}, nothing); });
  });
  run_local(2, [](Communicator& comm) {
    Parameters parameters = line(DType::kFloat64);
    Sgd optimizer(parameters.values(), {});
    test::expect_error(ErrorCode::kInvalid, {"micro_batches is 3", "2 workers"},
                       [&] { GradientTrainer(comm, parameters, optimizer, {.micro_batches = 3}); });
    test::expect_error(ErrorCode::kInvalid, {"micro_batches is 3", "2 workers"}, [&] {
      GlobalBatches(comm.rank(), comm.size(), {.samples = 9, .batch = 3, .micro_batches = 3});
    });
  });
}

}  // namespace
}  // namespace motley::runtime
