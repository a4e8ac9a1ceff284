// Shows that the engine trains as the models and optimizers say, with every width of vectors, one
// row at a time or by batches; that batches give the same bits on any number of threads; and that
// threads which write as they come learn as much as one.
#include "wide/kernel/flow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "test/wide/skewed_rows.h"
#include "wide/auc.h"
#include "wide/kernel/kernels.h"
#include "wide/kernel/replicas.h"
#include "wide/lane.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

struct Case {
  ModelKind kind;
  int factors;
  Optimizer optimizer = Optimizer::kAdaGrad;
};

std::string name_of(const Case& c) {
  return std::string(name(c.kind)) + std::to_string(c.factors) + "_" + name(c.optimizer);
}

// n rows of 5 fields with up to 30 features each. Complete: one feature in each field, of value 1
// or, where valued, of any.
enum class Shape { kComplete, kValued, kRagged };
Dataset synthetic(std::size_t n, Shape shape, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (std::size_t r = 0; r < n; ++r) {
    int sum = 0;
    std::string row;
    for (unsigned f = 0; f < 5; ++f) {
      const unsigned many = shape == Shape::kRagged ? static_cast<unsigned>(random() % 3) : 1;
      for (unsigned i = 0; i < many; ++i) {
        const unsigned id =
            f * 100 + i * 30 + static_cast<unsigned>(random() % 30 * (random() % 2));
        sum += static_cast<int>(id % 7) - 3;
        const char* value = shape == Shape::kComplete || random() % 2 == 0 ? "1" : "0.5";
        row += " " + std::to_string(f) + ":" + std::to_string(id) + ":" + value;
      }
    }
    text += (sum > 0) != (random() % 10 == 0) ? "1" : "0";
    text += row + "\n";
  }
  return parse_text(text, "synthetic");
}

Model model_of(const Case& c, const Dataset& data, Loss loss = Loss::kDefault) {
  return Model::of({.kind = c.kind, .loss = loss, .optimizer = c.optimizer, .factors = c.factors},
                   data);
}

std::vector<std::uint64_t> all_rows(const Samples& samples) {
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  return rows;
}

std::vector<int> lanes_here() {
  std::vector<int> lanes;
  for (int n = 4; n <= static_cast<int>(widest_lanes()); n *= 2) lanes.push_back(n);
  return lanes;
}

// Trains a copy of `model` and returns its state.
std::vector<float> trained(const Model& model, const Samples& samples, const UpdateOptions& update,
                           const FlowOptions& flow, int epochs = 1) {
  Floats state(model.weights().begin(), model.weights().end());
  const auto rows = all_rows(samples);
  const auto engine = make_flow(model.options(), model.layout(), flow);
  for (int e = 0; e < epochs; ++e) engine->train(samples, rows, update, state);
  return {state.begin(), state.end()};
}

// What training by rows makes of a model without factors, in doubles: a row's step is made when the
// next row has been scored.
template <class O>
std::vector<float> steps_a_row_late(const Model& model, const Samples& samples,
                                    const UpdateOptions& update) {
  using D = Lane<double>;
  const Layout& layout = model.layout();
  const Job job = job_of(model.options(), layout, samples, update);
  std::vector<double> state(model.weights().begin(), model.weights().end());
  double slope = 0;
  const auto each_edge = [&](std::size_t r, auto body) {
    for (auto e = samples.row_begin[r]; e < samples.row_begin[r + 1]; ++e) {
      body(layout.linear(samples.slots[e]),
           static_cast<double>(samples.values[samples.uniform ? r : e]));
    }
  };
  const auto step = [&](std::size_t at, std::size_t stride, double gradient, const Rates& rates) {
    D s[O::kPlanes];
    for (std::size_t p = 0; p < O::kPlanes; ++p) s[p] = D(state[at + p * stride]);
    const auto t = static_cast<float>(state[Layout::kUpdates]) + 1;
    O::step(s, D(gradient), of_step<O>(rates, t));
    for (std::size_t p = 0; p < O::kPlanes; ++p) state[at + p * stride] = s[p].value;
  };
  for (std::size_t r = 0; r <= samples.rows(); ++r) {
    double score = state[Layout::kBias];
    if (r < samples.rows()) each_edge(r, [&](std::size_t at, double x) { score += state[at] * x; });
    if (r > 0) {
      each_edge(r - 1, [&](std::size_t at, double x) { step(at, 1, slope * x, job.linear); });
      step(Layout::kBias, layout.shared, slope, job.shared);
      state[Layout::kUpdates] += 1;
    }
    if (r < samples.rows()) slope = slope_of(job.loss, score, samples.labels[r]);
  }
  return {state.begin(), state.end()};
}

std::vector<float> steps_a_row_late(const Model& model, const Samples& samples,
                                    const UpdateOptions& update) {
  switch (model.options().optimizer) {
    case Optimizer::kSgd:
      return steps_a_row_late<Sgd>(model, samples, update);
    case Optimizer::kAdaGrad:
      return steps_a_row_late<AdaGrad>(model, samples, update);
    case Optimizer::kFtrl:
      return steps_a_row_late<Ftrl>(model, samples, update);
    default:
      return steps_a_row_late<Adam>(model, samples, update);
  }
}

constexpr UpdateOptions kUpdate{
    .learning_rate = 0.1f, .l1 = 1e-4f, .l2 = 1e-3f, .l2_factors = 1e-3f};

class Engine : public testing::TestWithParam<Case> {};
// k 4, 8, 16, 32: loops of their own; 7 and 33 are filled up.
INSTANTIATE_TEST_SUITE_P(Kinds, Engine,
                         testing::Values(Case{ModelKind::kLogistic, 1}, Case{ModelKind::kSvm, 1},
                                         Case{ModelKind::kLogistic, 1, Optimizer::kSgd},
                                         Case{ModelKind::kLogistic, 1, Optimizer::kFtrl},
                                         Case{ModelKind::kLogistic, 1, Optimizer::kAdam},
                                         Case{ModelKind::kFm, 4}, Case{ModelKind::kFm, 7},
                                         Case{ModelKind::kFm, 8}, Case{ModelKind::kFm, 16},
                                         Case{ModelKind::kFm, 32}, Case{ModelKind::kFm, 33},
                                         Case{ModelKind::kFm, 8, Optimizer::kSgd},
                                         Case{ModelKind::kFm, 8, Optimizer::kFtrl},
                                         Case{ModelKind::kFm, 16, Optimizer::kAdam},
                                         Case{ModelKind::kFfm, 4}, Case{ModelKind::kFfm, 7},
                                         Case{ModelKind::kFfm, 16},
                                         Case{ModelKind::kFfm, 4, Optimizer::kFtrl},
                                         Case{ModelKind::kFwfm, 4}, Case{ModelKind::kFwfm, 8}),
                         [](const auto& i) { return name_of(i.param); });

// Models without factors against rows whose steps come late, others against batches of one row.
// Weights may differ after 200 rows, as vectors of different widths have roots of different
// precision.
TEST_P(Engine, TrainsAlikeWithEveryWidthAndAsRowsOneByOne) {
  for (const Shape shape : {Shape::kComplete, Shape::kValued, Shape::kRagged}) {
    const Dataset data = synthetic(200, shape, 1);
    const Model model = model_of(GetParam(), data);
    const Samples samples = model.prepare(data);
    EXPECT_EQ(samples.uniform, shape == Shape::kComplete);
    EXPECT_EQ(samples.complete, shape != Shape::kRagged && has_fields(GetParam().kind));
    EXPECT_TRUE(samples.distinct);
    const auto plain = trained(model, samples, kUpdate, {.lanes = 4});
    const std::vector<float> before(model.weights().begin(), model.weights().end());
    EXPECT_NE(plain, before);
    for (const int lanes : lanes_here()) {
      const auto fused = trained(model, samples, kUpdate, {.lanes = lanes});
      Floats one_by_one(before.begin(), before.end());
      const auto engine = make_flow(model.options(), model.layout(), {.lanes = lanes});
      UpdateOptions batches = kUpdate;
      batches.batch_rows = 2;
      if (has_factors(GetParam().kind)) {
        for (std::uint64_t row = 0; row < samples.rows(); ++row) {
          engine->train(samples, std::vector<std::uint64_t>{row}, batches, one_by_one);
        }
      } else {
        const auto late = steps_a_row_late(model, samples, kUpdate);
        one_by_one.assign(late.begin(), late.end());
      }
      for (std::size_t i = 0; i < plain.size(); ++i) {
        const float tolerance = 4e-3f * (0.1f + std::abs(plain[i]));
        ASSERT_NEAR(fused[i], plain[i], tolerance) << lanes << " lanes, " << i;
        ASSERT_NEAR(one_by_one[i], fused[i], tolerance) << lanes << " lanes, " << i;
      }
    }
  }
}

// 2, 3, 5: threads that divide slots and rows differently, more than cores.
TEST_P(Engine, GivesTheSameBitsInBatchesOnAnyNumberOfThreads) {
  const Dataset data = synthetic(500, Shape::kRagged, 2);
  const Model model = model_of(GetParam(), data);
  const Samples samples = model.prepare(data);
  UpdateOptions update = kUpdate;
  update.batch_rows = 64;  // does not divide 500
  const auto one = trained(model, samples, update, {.threads = 1}, 2);
  for (const int threads : {2, 3, 5}) {
    EXPECT_EQ(trained(model, samples, update, {.threads = threads}, 2), one) << threads;
  }
}

TEST_P(Engine, ScoresEveryRowOnItsOwn) {
  const Dataset data = synthetic(300, Shape::kComplete, 3);
  Model model = model_of(GetParam(), data);
  const auto state = trained(model, model.prepare(data), kUpdate, {}, 3);
  std::copy(state.begin(), state.end(), model.weights().begin());
  const std::vector<float> scores = model.scores(model.prepare(data));
  EXPECT_EQ(model.scores(model.prepare(data), 3), scores);
  // With a row of another shape in the file, no loop for complete rows is used.
  Dataset more = data;
  more.row_begin.push_back(more.entries());
  more.labels.push_back(1);
  std::vector<float> beside = model.scores(model.prepare(more));
  EXPECT_EQ(beside.back(), model.weights()[Layout::kBias]) << "no features: the bias";
  beside.pop_back();
  EXPECT_EQ(beside, scores);
}

double loss_of_state(Model model, const Samples& samples, std::span<const float> state) {
  std::copy(state.begin(), state.end(), model.weights().begin());
  return evaluate(model.scores(samples), samples.labels, {.loss = model.options().loss}).loss;
}

TEST_P(Engine, LearnsWithThreadsThatWriteAsTheyCome) {
  const Dataset data = synthetic(4000, Shape::kRagged, 4);
  const Model model = model_of(GetParam(), data);
  const Samples samples = model.prepare(data);
  const double before = loss_of_state(model, samples, model.weights());
  for (const std::size_t merge_rows : {300, 100'000}) {
    const UpdateOptions update{.learning_rate = 0.05f, .merge_rows = merge_rows};
    const auto state = trained(model, samples, update, {.threads = 3}, 4);
    EXPECT_LT(loss_of_state(model, samples, state), before) << "merged after " << merge_rows;
  }
}

// The worst that threads can do to each other, on one thread and the same each time: all take what
// the state has, learn from as many rows each, and merge what they learnt one after the other. The
// loss after four epochs of that; `apart` 0: as the copies themselves wish.
double loss_of_copies(const Model& model, const Samples& samples, float rate, int threads,
                      std::size_t apart) {
  const Job job = job_of(model.options(), model.layout(), samples, {.learning_rate = rate});
  const Kernels kernels = make_kernels(model.options(), model.layout(), widest_lanes());
  const auto rows = all_rows(samples);
  Floats state(model.weights().begin(), model.weights().end());
  Floats scratch(kernels.scratch_floats);
  Replicas replicas(kernels, model.layout(), threads);
  if (apart == 0) apart = replicas.merge_rows();
  std::vector<Tables> tables;
  for (int t = 0; t < threads; ++t) tables.push_back(replicas.take(t, state.data()));
  LossSum sum;
  for (std::size_t at = 0; at < 4 * rows.size();) {
    for (int t = 0; t < threads; ++t, at += apart) {
      const std::size_t first = at % (rows.size() - apart + 1);
      kernels.train(job, &rows[first], apart, tables[t], scratch.data(), sum);
    }
    const float scale = replicas.scale(model.options().optimizer, apart);
    for (int t = 0; t < threads; ++t) replicas.merge(t, state.data(), job, scale);
  }
  return loss_of_state(model, samples, state);
}

TEST_P(Engine, LearnsAsMuchFromCopiesThatMeet) {
  const Dataset data = synthetic(4000, Shape::kRagged, 4);
  const Model model = model_of(GetParam(), data);
  const Samples samples = model.prepare(data);
  const auto loss = [&](int threads, std::size_t apart) {
    return loss_of_copies(model, samples, 0.05f, threads, apart);
  };
  const double before = loss_of_state(model, samples, model.weights());
  const double one = loss(1, 500);
  EXPECT_LT(one, 0.95 * before);
  EXPECT_LT(loss(2, 50), one + 0.5 * (before - one));
  EXPECT_LT(loss(4, 500), one + 0.5 * (before - one));
}

// With eight threads its first steps once added up to a loss of 80.
TEST(WideFfm, LearnsOnAnyNumberOfThreads) {
  const Dataset data = test::skewed_rows({.rows = 8000, .fields = 20, .features = 60});
  const Model model = Model::of({.kind = ModelKind::kFfm, .factors = 4}, data);
  const Samples samples = model.prepare(data);
  ASSERT_GT(model.layout().width, 64u);
  const double one = loss_of_copies(model, samples, 0.1f, 1, 4000);
  for (const int threads : {2, 4, 8, 32})
    EXPECT_LT(loss_of_copies(model, samples, 0.1f, threads, 0), 1.3 * one) << threads;
}

// A row of weight 2 is a row of which the slope counts twice; a row of weight 0 changes nothing but
// what the optimizer moves without a gradient.
TEST_P(Engine, CountsRowsByTheirWeights) {
  Dataset data = synthetic(50, Shape::kRagged, 5);
  const Model model = model_of({GetParam().kind, GetParam().factors, Optimizer::kSgd}, data);
  Dataset twice = data;
  twice.weights.assign(data.rows(), 2.0f);
  Dataset never = data;
  never.weights.assign(data.rows(), 0.0f);
  const UpdateOptions small{.learning_rate = 1e-3f};
  const UpdateOptions large{.learning_rate = 2e-3f};
  const auto expected = trained(model, model.prepare(data), large, {});
  const auto weighted = trained(model, model.prepare(twice), small, {});
  for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(weighted[i], expected[i], 1e-6);
  auto none = trained(model, model.prepare(never), small, {});
  none[Layout::kUpdates] = 0;
  EXPECT_TRUE(std::ranges::equal(none, model.weights()));
}

// By SGD of tiny rate in one batch, a weight moves by the gradient, which is compared with the
// change of the loss itself.
TEST_P(Engine, MovesWeightsAgainstTheGradientOfTheLoss) {
  const Dataset data = synthetic(20, Shape::kRagged, 6);
  for (const Loss loss : {Loss::kLogistic, Loss::kSquared, Loss::kSquaredHinge}) {
    Model model = model_of({GetParam().kind, GetParam().factors, Optimizer::kSgd}, data, loss);
    const Samples samples = model.prepare(data);
    const auto total = [&] {
      const auto scores = model.scores(samples);
      double sum = 0;
      for (std::size_t r = 0; r < scores.size(); ++r) {
        sum += loss_of(loss, static_cast<double>(scores[r]), samples.labels[r]);
      }
      return sum;
    };
    const auto moved = trained(model, samples, {.learning_rate = 1.0f, .batch_rows = 20}, {});
    for (std::size_t i = 0; i < moved.size(); i += 1 + moved.size() / 200) {
      if (!model.layout().is_weight(i)) continue;
      const float w = model.weights()[i];
      const float h = 1.0f / 64;
      model.weights()[i] = w + h;
      const double up = total();
      model.weights()[i] = w - h;
      const double down = total();
      model.weights()[i] = w;
      const double numeric = (up - down) / (2 * static_cast<double>(h));
      EXPECT_NEAR(w - moved[i], numeric, 2e-3 * (1 + std::abs(numeric))) << name(loss) << " " << i;
    }
  }
}

TEST(LossSum, IsTheSumOfLosses) {
  LossSum sum;
  double expected = 0;
  for (int i = 0; i < 3000; ++i) {
    const float score = static_cast<float>(i % 200) / 10 - 10;
    const float label = i % 3 == 0 ? 1.0f : 0.0f;
    EXPECT_NEAR(sum.add(Loss::kLogistic, score, label, 1), LogisticLoss::slope(score, label), 3e-7);
    expected += LogisticLoss::loss(score, label);
  }
  EXPECT_NEAR(sum.sum(), expected, 1e-3);
  EXPECT_EQ(LossSum().sum(), 0);
}

}  // namespace
}  // namespace motley::wide
