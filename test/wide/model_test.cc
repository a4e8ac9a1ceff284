// Shows that the models' gradients are those of their scores, that normalisation is consistent,
// and that a saved model comes back bit for bit or not at all.
#include "wide/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "comm/error.h"
#include "wide/fm.h"
#include "wide/kernel/flow.h"
#include "wide/logistic.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A random model of features 0 … n - 1.
Model random_model(const ModelOptions& options, std::uint32_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> ids(n);
  for (std::uint32_t i = 0; i < n; ++i) ids[i] = i;
  Model model(options, Dictionary(ids));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    if (!model.layout().is_accumulator(i)) model.weights()[i] = uniform(random);
  }
  return model;
}

// The score by its definition, pair by pair, in double.
double score_by_pairs(const Model& model, const std::vector<double>& weights,
                      const Samples& samples, std::size_t row) {
  const Layout& layout = model.layout();
  double score = weights[0];
  for (auto i = samples.row_begin[row]; i < samples.row_begin[row + 1]; ++i) {
    const double* const a = weights.data() + layout.row(samples.slots[i]);
    score += a[layout.weights - 1] * samples.values[i];
    for (auto j = i + 1; j < samples.row_begin[row + 1]; ++j) {
      const double* const b = weights.data() + layout.row(samples.slots[j]);
      for (std::size_t d = 0; d + 1 < layout.weights; ++d) {
        score += a[d] * b[d] * samples.values[i] * samples.values[j];
      }
    }
  }
  return score;
}

double loss_in_double(double score, double label) {
  return std::log1p(std::exp(label > 0 ? -score : score));
}

struct Kind {
  ModelKind kind;
  int factors;
};
class Models : public testing::TestWithParam<Kind> {
 protected:
  ModelOptions options() const { return {.kind = GetParam().kind, .factors = GetParam().factors}; }
};
// 4, 8, 16, 32: loops of their own. 1, 7, 33: the general loop.
INSTANTIATE_TEST_SUITE_P(Kinds, Models,
                         testing::Values(Kind{ModelKind::kLogistic, 8}, Kind{ModelKind::kFm, 1},
                                         Kind{ModelKind::kFm, 4}, Kind{ModelKind::kFm, 7},
                                         Kind{ModelKind::kFm, 8}, Kind{ModelKind::kFm, 16},
                                         Kind{ModelKind::kFm, 32}, Kind{ModelKind::kFm, 33}),
                         [](const auto& i) {
                           return std::string(name(i.param.kind)) + std::to_string(i.param.factors);
                         });

constexpr const char* kRows =
    "1 0:1 2:0.5 3:-2\n0 1:1 4:3\n1\n0 0:0 2:0\n1 4:0.25 0:1 1:-1 2:2 3:1\n";

TEST_P(Models, ScoreIsTheSumOverPairs) {
  const Model model = random_model(options(), 5, 11);
  const Samples samples = model.prepare(parse_text(kRows, "t"));
  const std::vector<double> weights(model.weights().begin(), model.weights().end());
  const std::vector<float> scores = model.scores(samples);
  for (std::size_t r = 0; r < samples.rows(); ++r) {
    EXPECT_NEAR(scores[r], score_by_pairs(model, weights, samples, r), 1e-5) << "row " << r;
  }
  EXPECT_EQ(scores[2], model.weights()[0]) << "a row without features scores the bias";
  EXPECT_EQ(scores[3], model.weights()[0]) << "and so does a row of zeros";
}

// AdaGrad with a huge accumulator and as huge a learning rate moves a weight by the gradient alone,
// so the change of each weight is the gradient; compared with central differences in double.
TEST_P(Models, UpdateFollowsTheGradient) {
  Model model = random_model(options(), 5, 12);
  const Samples samples = model.prepare(parse_text(kRows, "t"));
  const std::vector<double> before(model.weights().begin(), model.weights().end());
  const auto flow = make_flow(model.options(), model.layout());
  const UpdateOptions update{
      .learning_rate = 1.0f, .l2 = 0.25f, .l2_factors = 0.5f, .batch_rows = samples.rows()};
  // Accumulators of 2^40: the gradient's square vanishes beside them, their root is 2^20.
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (model.layout().is_accumulator(i)) model.weights()[i] = 0x1p40f;
  }
  UpdateOptions scaled = update;
  scaled.learning_rate = 0x1p20f;
  const std::vector<std::uint64_t> rows{0, 1, 2, 3, 4};
  const double loss = flow->train(samples, rows, scaled, model.weights());
  const auto objective = [&](const std::vector<double>& w) {
    double sum = 0;
    for (std::size_t r = 0; r < samples.rows(); ++r) {
      sum += loss_in_double(score_by_pairs(model, w, samples, r), samples.labels[r]);
      for (auto e = samples.row_begin[r]; e < samples.row_begin[r + 1]; ++e) {
        const double* const row = w.data() + model.layout().row(samples.slots[e]);
        for (std::size_t d = 0; d < model.layout().weights; ++d) {
          sum += 0.5 * (d + 1 < model.layout().weights ? 0.5 : 0.25) * row[d] * row[d];
        }
      }
    }
    return sum;
  };
  double data_loss = 0;
  for (std::size_t r = 0; r < samples.rows(); ++r) {
    data_loss += loss_in_double(score_by_pairs(model, before, samples, r), samples.labels[r]);
  }
  EXPECT_NEAR(loss, data_loss, 1e-4);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (model.layout().is_accumulator(i)) continue;
    std::vector<double> w = before;
    w[i] = before[i] + 1e-5;
    const double up = objective(w);
    w[i] = before[i] - 1e-5;
    const double numeric = (up - objective(w)) / 2e-5;
    const double moved = before[i] - static_cast<double>(model.weights()[i]);
    EXPECT_NEAR(moved, numeric, 2e-5 * (1 + std::abs(numeric))) << "weight " << i;
  }
}

// A batch of one row and a row applied at once are the same arithmetic.
TEST_P(Models, BatchOfOneRowEqualsTheFusedPass) {
  Model fused = random_model(options(), 5, 13);
  Model batched = random_model(options(), 5, 13);
  const Samples samples = fused.prepare(parse_text(kRows, "t"));
  const auto flow = make_flow(fused.options(), fused.layout());
  for (const std::uint64_t row : {0, 1, 2, 3, 4}) {
    const std::vector<std::uint64_t> rows{row};
    flow->train(samples, rows, {.l2 = 0.1f, .batch_rows = 1}, fused.weights());
    flow->train(samples, rows, {.l2 = 0.1f, .batch_rows = 2}, batched.weights());
  }
  for (std::size_t i = 0; i < fused.weights().size(); ++i) {
    EXPECT_NEAR(fused.weights()[i], batched.weights()[i], 1e-6) << i;
  }
}

TEST_P(Models, ComeBackFromAFileBitForBit) {
  const std::string path = testing::TempDir() + "motley_model_" + std::to_string(getpid());
  ModelOptions o = options();
  o.normalisation = Normalisation::kNone;
  o.seed = 99;
  const Model model = random_model(o, 5, 14);
  model.save(path);
  const Model loaded = Model::load(path);
  std::remove(path.c_str());
  EXPECT_EQ(loaded.options().kind, o.kind);
  EXPECT_EQ(loaded.options().normalisation, o.normalisation);
  EXPECT_EQ(loaded.options().seed, o.seed);
  EXPECT_TRUE(std::ranges::equal(loaded.weights(), model.weights()));
  EXPECT_TRUE(std::ranges::equal(loaded.dictionary().ids(), model.dictionary().ids()));
  const Dataset data = parse_text(kRows, "t");
  EXPECT_EQ(loaded.scores(loaded.prepare(data)), model.scores(model.prepare(data)));
}

TEST(Normalisation, DividesEachRowByItsNorm) {
  const Model model({.normalisation = Normalisation::kInstance}, Dictionary({3, 4}));
  const Samples s = model.prepare(parse_text("1 3:3 4:4\n1 3:0\n1\n1 4:3e38 3:3e38\n", "t"));
  EXPECT_THAT(s.values, ElementsAre(0.6f, 0.8f, 0.f, testing::FloatEq(std::sqrt(0.5f)),
                                    testing::FloatEq(std::sqrt(0.5f))));
  EXPECT_THAT(s.row_begin, ElementsAre(0, 2, 3, 3, 5));
}

TEST(Prepare, LeavesOutUnknownFeaturesButCountsThemInTheNorm) {
  const Model model({}, Dictionary({7}));
  const Samples s = model.prepare(parse_text("1 7:3 8:4\n0 9:1\n0 7:2\n", "t"));
  EXPECT_THAT(s.slots, ElementsAre(0, 0));
  EXPECT_THAT(s.values, ElementsAre(0.6f, 1.f));
  EXPECT_THAT(s.row_begin, ElementsAre(0, 1, 1, 2));
  EXPECT_EQ(s.unknown_entries, 2u);
}

TEST(Model, RefusesScoresThatAreNotFinite) {
  Model model({.kind = ModelKind::kLogistic, .normalisation = Normalisation::kNone},
              Dictionary({1}));
  model.weights()[2] = 1e10f;
  EXPECT_THROW(model.scores(model.prepare(parse_text("1 1:1e38\n", "t"))), Error);
}

TEST(Model, RefusesOptionsOutOfRange) {
  for (const ModelOptions& o :
       {ModelOptions{.factors = 0}, ModelOptions{.factors = 257}, ModelOptions{.init_scale = NAN},
        ModelOptions{.initial_accumulator = 0}}) {
    EXPECT_THROW(Model(o, Dictionary({1})), Error);
  }
  EXPECT_THROW(model_kind("ffm9"), Error);
}

TEST(Dictionary, OrdersByFrequencyThenId) {
  const Dataset data = parse_text("1 9:1 5:1\n0 9:1 2:1 4294967295:1\n", "t");
  const Dictionary d = Dictionary::by_frequency(data);
  EXPECT_THAT(d.ids(), ElementsAre(9, 2, 5, 4294967295u));
  EXPECT_EQ(d.slot(9), 0u);
  EXPECT_EQ(d.slot(4294967295u), 3u);
  EXPECT_EQ(d.slot(0), Dictionary::kUnknown);
  EXPECT_EQ(Dictionary().slot(3), Dictionary::kUnknown);
  EXPECT_THROW(Dictionary({1, 2, 1}), Error);
}

// 100,000 ids: the table grows many times.
TEST(Dictionary, FindsEveryIdOfManyAndNoOther) {
  Dataset data;
  for (std::uint32_t i = 0; i < 100'000; ++i) data.ids.push_back(i * 40'503u);
  const Dictionary d = Dictionary::by_frequency(data);
  ASSERT_EQ(d.size(), 100'000u);
  for (const std::uint32_t id : data.ids) ASSERT_EQ(d.ids()[d.slot(id)], id);
  for (std::uint32_t i = 1; i < 1000; ++i) ASSERT_EQ(d.slot(i), Dictionary::kUnknown);
}

class ModelFile : public testing::Test {
 protected:
  void SetUp() override {
    random_model({}, 3, 5).save(path_);
    std::ifstream in(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string error_of(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      Model::load(path_);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalid);
      return e.what();
    }
    return "no error";
  }
  std::string path_ = testing::TempDir() + "motley_model_file_" + std::to_string(getpid());
  std::string bytes_;
};

TEST_F(ModelFile, RefusesEveryTruncation) {
  for (std::size_t n = 0; n < bytes_.size(); ++n) {
    EXPECT_THAT(error_of(bytes_.substr(0, n)), AllOf(HasSubstr(path_), HasSubstr("bytes"))) << n;
  }
  EXPECT_THAT(error_of(bytes_ + "x"), HasSubstr("damaged"));
}

TEST_F(ModelFile, RefusesEveryFlippedBit) {
  for (std::size_t i = 0; i < bytes_.size(); ++i) {
    std::string damaged = bytes_;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    EXPECT_NE(error_of(damaged), "no error") << "byte " << i;
  }
  EXPECT_EQ(error_of(bytes_), "no error");
}

TEST_F(ModelFile, NamesAForeignFileAndANewerVersion) {
  EXPECT_THAT(error_of("1 3:1 4:1\n" + std::string(100, '1')), HasSubstr("no Motley model"));
  std::string newer = bytes_;
  newer[8] = 2;
  EXPECT_THAT(error_of(newer), AllOf(HasSubstr("version 2"), HasSubstr("version 1")));
}

TEST(ModelFileErrors, NamesThePathThatCannotBeWrittenOrRead) {
  EXPECT_THROW(random_model({}, 1, 1).save("/nonexistent/m"), Error);
  EXPECT_THROW(Model::load("/nonexistent/m"), Error);
}

}  // namespace
}  // namespace motley::wide
