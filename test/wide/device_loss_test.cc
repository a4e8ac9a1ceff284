// Shows that asynchronous training learns in an epoch what deterministic training learns: the log
// loss of rows that it has not seen. All blocks of a grid run at once, as on a device.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "test/support/simt/turns.h"
#include "test/wide/skewed_rows.h"
#include "wide/auc.h"
#include "wide/defaults.h"
#include "wide/device/engine.h"
#include "wide/reader.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr std::size_t kBatch = 128;  // of deterministic training, if nothing else is wished

// Five sixths of the rows to learn from, at the defaults of training, and the others.
struct Epoch {
  Model model;
  Samples train, test;
  UpdateOptions update;
};

Epoch epoch_of(const ModelOptions& kind, const Dataset& all, std::uint64_t seed) {
  const std::vector<std::uint64_t> order = shuffled(all.rows(), seed);
  const std::size_t cut = all.rows() * 5 / 6;
  const Dataset train = rows_of(all, std::span(order).first(cut));
  const TrainOptions options = settled({.model = kind, .seed = seed}, train, true);
  ModelOptions of_model = options.model;
  of_model.seed = seed;
  of_model.initial_accumulator = options.initial_accumulator;
  Model model = Model::of(of_model, train);
  Samples samples = model.prepare(train);
  Samples test = model.prepare(rows_of(all, std::span(order).subspan(cut)));
  return {std::move(model), std::move(samples), std::move(test), update_options(options)};
}

double loss_after(const Epoch& epoch, Flow& flow, std::size_t batch_rows) {
  Model model = epoch.model;
  std::vector<std::uint64_t> rows(epoch.train.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  UpdateOptions update = epoch.update;
  update.batch_rows = batch_rows;
  flow.train(epoch.train, rows, update, model.weights());
  return evaluate(model.scores(epoch.test), epoch.test.labels, {.loss = model.options().loss}).loss;
}

struct Losses {
  double cpu, deterministic, asynchronous;
};
Losses losses_after(const Epoch& epoch, const DeviceFlowOptions& options = {}) {
  const auto cpu = make_flow(epoch.model.options(), epoch.model.layout());
  const auto device = make_device_flow(epoch.model.options(), epoch.model.layout(), options);
  const double deterministic = loss_after(epoch, *device, kBatch);
  const simt::AtOnce at_once(16);
  return {loss_after(epoch, *cpu, kBatch), deterministic, loss_after(epoch, *device, 1)};
}

struct Case {
  ModelKind kind;
  Optimizer optimizer = Optimizer::kAdaGrad;
  int factors = 8;
};
std::string name_of(const Case& c) { return std::string(name(c.kind)) + "_" + name(c.optimizer); }

class AsynchronousLoss : public testing::TestWithParam<Case> {
 protected:
  ModelOptions kind() const {
    return {
        .kind = GetParam().kind, .optimizer = GetParam().optimizer, .factors = GetParam().factors};
  }

  void expect_alike(const Dataset& all, std::uint64_t seed) const {
    const Losses loss = losses_after(epoch_of(kind(), all, seed));
    std::printf("%s, seed %u: log loss by batches %.5f, CPU %.5f, asynchronously %.5f (%+.2f %%)\n",
                name_of(GetParam()).c_str(), static_cast<unsigned>(seed), loss.deterministic,
                loss.cpu, loss.asynchronous, 100 * (loss.asynchronous / loss.cpu - 1));
    EXPECT_NEAR(loss.deterministic, loss.cpu, 1e-5 * loss.cpu);
    EXPECT_LT(loss.asynchronous, 1.002 * loss.cpu);
  }
  void expect_alike_on_criteo(std::uint64_t seed) const {
    const std::string path = MOTLEY_SHARED "/data/criteo7k/train.tsv.gz";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
    expect_alike(read_file(path), seed);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, AsynchronousLoss,
                         testing::Values(Case{ModelKind::kLogistic}, Case{ModelKind::kFm},
                                         Case{ModelKind::kFm, Optimizer::kAdam}),
                         [](const auto& i) { return name_of(i.param); });

TEST_P(AsynchronousLoss, IsThatOfBatchesOnCriteosRows) {
  for (const std::uint64_t seed : {1u, 2u, 3u}) expect_alike_on_criteo(seed);
}

TEST_P(AsynchronousLoss, IsThatOfBatchesOnSkewedRows) {
  expect_alike(test::skewed_rows({.rows = 14'000, .fields = 20, .growth = 1.15, .skew = 4}), 1);
}

// Pairs of fields take long in the emulator.
using AsynchronousLossByField = AsynchronousLoss;
INSTANTIATE_TEST_SUITE_P(Kinds, AsynchronousLossByField,
                         testing::Values(Case{ModelKind::kFfm, Optimizer::kAdaGrad, 4},
                                         Case{ModelKind::kFwfm}),
                         [](const auto& i) { return name_of(i.param); });

TEST_P(AsynchronousLossByField, IsThatOfBatchesOnCriteosRows) { expect_alike_on_criteo(2); }

// What blocks_after() is for: blocks that all begin with the same weights take steps too long.
TEST(AsynchronousFm, IsSpoiltByTooManyBlocksAtOnce) {
  const Dataset all = test::skewed_rows({.rows = 7200, .fields = 20, .growth = 1.15, .skew = 4});
  const Epoch epoch = epoch_of({.kind = ModelKind::kFm, .factors = 8}, all, 1);
  const FlowShape shape{.blocks = 6, .step_rows = 256, .hot = 1000};
  const auto device = make_device_flow(epoch.model.options(), epoch.model.layout());
  const auto spoilt =
      make_device_flow(epoch.model.options(), epoch.model.layout(), {.shape = shape});
  const simt::AtOnce at_once(6);
  EXPECT_GT(loss_after(epoch, *spoilt, 1), 1.05 * loss_after(epoch, *device, 1));
}

}  // namespace
}  // namespace motley::wide
