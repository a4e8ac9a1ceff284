// Shows that the engine for devices has the CPU's gradients, and learns what the CPU learns: by
// batches the same but for rounding, with the same bits for any grid; row by row as much. In the
// emulator, or on a device.
#include "comm/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "comm/error.h"
#include "test/wide/skewed_rows.h"
#include "wide/auc.h"
#include "wide/device/engine.h"
#include "wide/kernel/kernels.h"
#include "wide/lane.h"
#include "wide/reader.h"
#include "wide/trainer.h"

namespace motley::wide {
namespace {

using test::skewed_rows;

struct Case {
  ModelKind kind;
  int factors;
};

std::string name_of(const Case& c) { return std::string(name(c.kind)) + std::to_string(c.factors); }

Model model_of(const Case& c, const Dataset& data, Optimizer optimizer = Optimizer::kAdaGrad) {
  return Model::of({.kind = c.kind, .optimizer = optimizer, .factors = c.factors}, data);
}

// Adam's steps do not grow with gradients: where one is nearly zero, its rounding alone moves
// weights.
float rate_of(Optimizer optimizer) { return optimizer == Optimizer::kAdam ? 0.01f : 0.1f; }

std::vector<std::uint64_t> all_rows(const Samples& samples) {
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  return rows;
}

struct Trained {
  std::vector<float> state;
  double loss = 0;  // of the last epoch
};

Trained trained(const Model& model, const Samples& samples, const UpdateOptions& update, Flow& flow,
                int epochs = 1) {
  Trained t{.state{model.weights().begin(), model.weights().end()}};
  for (int e = 0; e < epochs; ++e) t.loss = flow.train(samples, all_rows(samples), update, t.state);
  return t;
}
Trained on_cpu(const Model& model, const Samples& samples, const UpdateOptions& update,
               int epochs = 1) {
  const auto flow = make_flow(model.options(), model.layout());
  return trained(model, samples, update, *flow, epochs);
}
Trained on_device(const Model& model, const Samples& samples, const UpdateOptions& update,
                  const DeviceFlowOptions& options = {}, int epochs = 1) {
  const auto flow = make_device_flow(model.options(), model.layout(), options);
  return trained(model, samples, update, *flow, epochs);
}

double distance(std::span<const float> a, std::span<const float> b) {
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    sum += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(sum / norm);
}

class DeviceEngineOn : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU, or no CUDA in this build";
  }
};
class DeviceEngine : public DeviceEngineOn, public testing::WithParamInterface<Case> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DeviceEngine,
                         testing::Values(Case{ModelKind::kLogistic, 1}, Case{ModelKind::kSvm, 1},
                                         Case{ModelKind::kFm, 4}, Case{ModelKind::kFm, 7},
                                         Case{ModelKind::kFm, 16}, Case{ModelKind::kFm, 32},
                                         Case{ModelKind::kFm, 41}, Case{ModelKind::kFm, 128},
                                         Case{ModelKind::kFfm, 4}, Case{ModelKind::kFwfm, 7}),
                         [](const auto& i) { return name_of(i.param); });

// Of SGD with rate 1 a step is the gradient. 300 rows: slots with more edges than a piece.
void expect_gradients_of_the_cpu(const Case& c) {
  for (const bool complete : {true, false}) {
    const Dataset data = skewed_rows({.rows = 300, .complete = complete, .valued = !complete});
    const Model model = model_of(c, data, Optimizer::kSgd);
    const Samples samples = model.prepare(data);
    const UpdateOptions update{.learning_rate = 1, .batch_rows = samples.rows()};
    const Trained cpu = on_cpu(model, samples, update);
    const Trained device = on_device(model, samples, update);
    EXPECT_NEAR(device.loss, cpu.loss, 1e-5 * cpu.loss);
    for (std::size_t i = 0; i < cpu.state.size(); ++i) {
      const float gradient = cpu.state[i] - model.weights()[i];
      ASSERT_NEAR(device.state[i] - model.weights()[i], gradient,
                  1e-5f * std::abs(gradient) + 2e-6f)
          << "at " << i << (complete ? " of complete rows" : " of ragged rows");
    }
  }
}
TEST_P(DeviceEngine, HasTheGradientsOfTheCpu) { expect_gradients_of_the_cpu(GetParam()); }
TEST_F(DeviceEngineOn, HasTheGradientsOfTheCpuOfManyFactors) {
  for (const Case& c : {Case{ModelKind::kFwfm, 41}, Case{ModelKind::kFwfm, 128},
                        Case{ModelKind::kFfm, 7}, Case{ModelKind::kFfm, 33}}) {
    SCOPED_TRACE(name_of(c));
    expect_gradients_of_the_cpu(c);
  }
}

TEST_P(DeviceEngine, GivesTheSameBitsByBatchesForAnyGrid) {
  for (const Optimizer optimizer : {Optimizer::kAdaGrad, Optimizer::kAdam}) {
    const Dataset data = skewed_rows({.rows = 330, .complete = false, .seed = 2});
    const Model model = model_of(GetParam(), data, optimizer);
    const Samples samples = model.prepare(data);
    UpdateOptions update{.learning_rate = rate_of(optimizer),
                         .l1 = 1e-4f,
                         .l2 = 1e-3f,
                         .l2_factors = 1e-3f,
                         .batch_rows = 300};
    const Trained cpu = on_cpu(model, samples, update, 2);
    const Trained one = on_device(model, samples, update, {.blocks = 1}, 2);
    // Two epochs of few rows, in which sums in another order tell most; Adam: see rate_of().
    const double near = optimizer == Optimizer::kAdam ? 5e-6 : 2e-6;
    EXPECT_LT(distance(one.state, cpu.state), near) << name(optimizer);
    EXPECT_NEAR(one.loss, cpu.loss, 1e-6 * cpu.loss) << name(optimizer);
    for (const unsigned blocks : {0u, 3u, 7u}) {
      if (optimizer == Optimizer::kAdam && blocks != 3) continue;
      const Trained more = on_device(model, samples, update, {.blocks = blocks}, 2);
      EXPECT_EQ(more.state, one.state) << blocks << " blocks, " << name(optimizer);
      EXPECT_EQ(more.loss, one.loss) << blocks << " blocks, " << name(optimizer);
    }
  }
}

TEST_P(DeviceEngine, ScoresAsTheCpuDoes) {
  const Dataset data = skewed_rows({.rows = 70, .complete = false, .valued = true, .seed = 3});
  const Model model = model_of(GetParam(), data);
  const Samples samples = model.prepare(data);
  const std::vector<float> expected = model.scores(samples);
  std::vector<float> scores(samples.rows());
  // Batches of 32 rows, the last one shorter.
  const auto flow = make_device_flow(model.options(), model.layout(), {.copied_rows = 32});
  flow->score(samples, model.weights(), scores);
  for (std::size_t i = 0; i < scores.size(); ++i)
    ASSERT_NEAR(scores[i], expected[i], 1e-5f * (1 + std::abs(expected[i]))) << i;
}

// Row by row an update is that of a row, by batches of a batch.
void count_as_batches(Trained& device, const Trained& cpu, std::size_t rows) {
  EXPECT_EQ(device.state[Layout::kUpdates], static_cast<float>(rows));
  device.state[Layout::kUpdates] = cpu.state[Layout::kUpdates];
}

bool have_room(const Layout& layout, const FlowShape& shape) {
  Floats none(layout.size());
  return flow_shared_bytes(state_at(none.data(), layout), shape) < device_shared_bytes();
}

// A tile whose slots are all hot is a batch; so is one whose slots are cold, if each has one edge.
TEST_P(DeviceEngine, LearnsByTilesWhatBatchesLearn) {
  for (const Optimizer optimizer :
       {Optimizer::kSgd, Optimizer::kAdaGrad, Optimizer::kFtrl, Optimizer::kAdam}) {
    for (const bool disjoint : {true, false}) {
      // 120 rows of up to 50 edges: more than lanes keep.
      const Dataset data = skewed_rows({.rows = 120,
                                        .fields = disjoint ? 5u : 25u,
                                        .features = 8,
                                        .complete = disjoint,
                                        .disjoint = disjoint});
      const Model model = model_of(GetParam(), data, optimizer);
      const Samples samples = model.prepare(data);
      UpdateOptions update{.learning_rate = rate_of(optimizer),
                           .l1 = 1e-4f,
                           .l2 = 1e-3f,
                           .l2_factors = 1e-3f,
                           .batch_rows = 120};
      const Trained cpu = on_cpu(model, samples, update);
      update.batch_rows = 1;
      FlowShape shape{.tile_rows = 120,
                      .step_rows = 120,
                      .hot = disjoint ? 0 : static_cast<std::uint32_t>(model.layout().slots),
                      .replicas = disjoint ? 1u : 2u};
      for (const bool by_feature : {false, true}) {
        if (by_feature && has_fields(GetParam().kind)) continue;
        shape.by_feature = by_feature;
        if (!have_room(model.layout(), shape)) continue;
        Trained device = on_device(model, samples, update, {.shape = shape});
        count_as_batches(device, cpu, samples.rows());
        EXPECT_LT(distance(device.state, cpu.state), 1e-5)
            << name(optimizer) << (disjoint ? ", cold" : ", hot") << (by_feature ? ", owned" : "");
        EXPECT_NEAR(device.loss, cpu.loss, 1e-5 * cpu.loss);
      }
    }
  }
}

// Steps of SGD grow with the rows that they sum up: the hottest slots make one after so many rows
// within a tile. Where all are hottest, each is a batch's.
TEST_P(DeviceEngine, StepsTheHottestMoreOftenBySgd) {
  const Dataset data = skewed_rows({.rows = 300, .features = 8, .complete = false});
  const Model model = model_of(GetParam(), data, Optimizer::kSgd);
  const Samples samples = model.prepare(data);
  Floats none(model.layout().size());
  DeviceJob job{.state = state_at(none.data(), model.layout())};
  const std::uint32_t seldom = flow_shape(job, 300).step_rows;
  job.optimizer = Optimizer::kSgd;
  FlowShape shape = flow_shape(job, 300);
  EXPECT_LT(shape.step_rows, seldom);
  const Trained cpu = on_cpu(model, samples, {.l2 = 1e-3f, .batch_rows = shape.step_rows});
  shape.blocks = 1;
  shape.hot = shape.hottest = static_cast<std::uint32_t>(model.layout().slots);
  Trained device = on_device(model, samples, {.l2 = 1e-3f}, {.shape = shape});
  count_as_batches(device, cpu, samples.rows());
  EXPECT_LT(distance(device.state, cpu.state), 1e-5);
  EXPECT_NEAR(device.loss, cpu.loss, 1e-5 * cpu.loss);
}

// Two blocks, some slots hot and some cold: what the flow is for.
TEST_P(DeviceEngine, LearnsAsMuchRowByRowAsBatchesDo) {
  const Dataset data = skewed_rows({.rows = 800, .complete = false, .seed = 5});
  for (const Optimizer optimizer : {Optimizer::kAdaGrad, Optimizer::kAdam}) {
    const Model model = model_of(GetParam(), data, optimizer);
    const Samples samples = model.prepare(data);
    UpdateOptions update{
        .learning_rate = rate_of(optimizer), .l2 = 2e-5f, .l2_factors = 5e-4f, .batch_rows = 64};
    const Trained cpu = on_cpu(model, samples, update, 2);
    update.batch_rows = 1;
    const FlowShape shape{.blocks = 2, .tile_rows = 64, .hot = 40, .replicas = 1};
    const Trained device = on_device(model, samples, update, {.shape = shape}, 2);
    EXPECT_LT(device.loss, 1.01 * cpu.loss) << name(optimizer);
  }
}

// Blocks add to the sums that FTRL's weights follow from, and hot weights are as old as a tile: no
// weight is left as it was before the sums of another block came, and as much is learnt.
TEST_P(DeviceEngine, FtrlsWeightsFollowTheSumsOfAllBlocks) {
  const Dataset data = skewed_rows({.rows = 480, .complete = false, .seed = 5});
  const Model model = model_of(GetParam(), data, Optimizer::kFtrl);
  const Samples samples = model.prepare(data);
  UpdateOptions update{.l1 = 1e-4f, .l2 = 2e-5f, .l2_factors = 5e-4f, .batch_rows = 64};
  const Trained cpu = on_cpu(model, samples, update, 2);
  update.batch_rows = 1;
  const FlowShape shape{.blocks = 3, .tile_rows = 64, .hot = 40, .replicas = 1};
  const Trained device = on_device(model, samples, update, {.shape = shape}, 2);
  EXPECT_LT(device.loss, 1.01 * cpu.loss);
  const Layout& layout = model.layout();
  const Job job = job_of(model.options(), layout, samples, update);
  std::size_t followed = 0;
  const auto expect_follows = [&](std::size_t at, std::size_t stride, const Rates& rates) {
    const float* const s = device.state.data() + at;
    if (s[2 * stride] == 0) return;  // was never updated
    Lane<double> planes[]{Lane<double>(0), Lane<double>(s[stride]), Lane<double>(s[2 * stride])};
    Ftrl::follow(planes, rates);
    const double expected = planes[0].value;
    ASSERT_NEAR(s[0], expected, 1e-5 * (1 + std::abs(expected))) << at;
    ++followed;
  };
  for (std::size_t slot = 0; slot < layout.slots; ++slot) {
    expect_follows(layout.linear(slot), 1, job.linear);
    for (std::size_t d = 0; d < layout.width; ++d)
      expect_follows(layout.factors_of(slot) + d, layout.width, job.factors);
  }
  EXPECT_GE(followed, layout.slots);
}

// sm_86, sm_80 and sm_90 give a block so much.
TEST_P(DeviceEngine, KeepsAsManyHotSlotsAsADeviceHasRoomFor) {
  const Layout layout = Layout::of({.kind = GetParam().kind, .factors = GetParam().factors},
                                   100'000, GetParam().kind == ModelKind::kFfm ? 39 : 0);
  Floats none(layout.linear(1));
  const DeviceJob job{.state = state_at(none.data(), layout)};
  std::uint32_t before = 0;
  for (const std::size_t bytes :
       {std::size_t{99} << 10, std::size_t{163} << 10, std::size_t{227} << 10}) {
    FlowShape shape = flow_shape(job, 5000, bytes);
    EXPECT_LE(flow_shared_bytes(job.state, shape), bytes - 1024);
    EXPECT_GE(shape.hot, std::max(before, 1u));
    before = shape.hot;
    if (shape.hot == 2048) continue;
    ++shape.hot;
    EXPECT_GT(flow_shared_bytes(job.state, shape), bytes - 1024);
  }
  EXPECT_EQ(flow_shape(job, 5000).hot, before) << "the emulator has what sm_90 has";
}

TEST_F(DeviceEngineOn, RefusesATileThatADeviceHasNoRoomFor) {
  const Layout layout = Layout::of({.kind = ModelKind::kFfm, .factors = 4}, 10, 90);
  Floats none(layout.size());
  const DeviceJob job{.state = state_at(none.data(), layout)};
  EXPECT_GT(flow_shape(job, 100, std::size_t{227} << 10).hot, 0u);
  EXPECT_THROW(flow_shape(job, 100, std::size_t{99} << 10), Error);
}

// An epoch of a9a, 32,561 rows.
struct A9a {
  Dataset train = read_file(MOTLEY_A9A "/a9a");
  Dataset test = read_file(MOTLEY_A9A "/a9a.t");
};

double loss_of(Model model, const Trained& trained, const Dataset& test) {
  std::copy(trained.state.begin(), trained.state.end(), model.weights().begin());
  const Samples samples = model.prepare(test);
  return evaluate(model.scores(samples), samples.labels, {.loss = model.options().loss}).loss;
}

TEST_F(DeviceEngineOn, AnEpochOfA9aEqualsTheCpu) {
  const A9a a9a;
  for (const Optimizer optimizer : {Optimizer::kAdaGrad, Optimizer::kAdam}) {
    const Model model = model_of({ModelKind::kFm, 8}, a9a.train, optimizer);
    const Samples samples = model.prepare(a9a.train);
    UpdateOptions update{
        .learning_rate = rate_of(optimizer), .l2 = 2e-5f, .l2_factors = 5e-4f, .batch_rows = 256};
    const Trained cpu = on_cpu(model, samples, update);
    const Trained device = on_device(model, samples, update);
    const double apart = distance(device.state, cpu.state);
    std::printf("a9a fm8, %s: states %.2g apart\n", name(optimizer), apart);
    EXPECT_LT(apart, 1e-6) << name(optimizer);
    EXPECT_NEAR(device.loss, cpu.loss, 1e-6 * cpu.loss) << name(optimizer);
    if (optimizer == Optimizer::kAdam) continue;  // see AsynchronousLoss
    update.batch_rows = 1;
    const Trained flow = on_device(model, samples, update);
    const double by_batch = loss_of(model, cpu, a9a.test), by_row = loss_of(model, flow, a9a.test);
    std::printf("test log loss by batches %.6f, row by row %.6f\n", by_batch, by_row);
    EXPECT_LT(by_row, 1.002 * by_batch);
  }
}

// Rows shuffled, epochs, validation and an early stop: the same as on the CPU, whose vectors have
// roots of fewer digits.
TEST_F(DeviceEngineOn, TheTrainerTrainsAsOnTheCpu) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  TrainOptions options{.epochs = 3, .batch_rows = 64};
  TrainingRun cpu(data, data, options);
  options.processor = Processor::kCuda;
  TrainingRun device(data, data, options);
  while (cpu.next_step()) {
  }
  while (device.next_step()) {
  }
  EXPECT_EQ(device.best_epoch(), cpu.best_epoch());
  const double loss = cpu.reports().back().validation->loss;
  EXPECT_NEAR(device.reports().back().validation->loss, loss, 1e-3 * loss);
  EXPECT_LT(distance(device.model().weights(), cpu.model().weights()), 1e-3);
}

TEST_F(DeviceEngineOn, RefusesWhatItDoesNotTrain) {
  const Dataset data = skewed_rows({});
  for (const ModelOptions& options : {ModelOptions{.kind = ModelKind::kFm, .factors = 129},
                                      ModelOptions{.kind = ModelKind::kFwfm, .factors = 129}}) {
    const Model model = Model::of(options, data);
    EXPECT_THROW(make_device_flow(model.options(), model.layout()), Error);
  }
}

}  // namespace
}  // namespace motley::wide
