// Shows that models are laid out as promised, that normalisation is consistent, and that a saved
// model comes back bit for bit or not at all.
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
#include "wide/reader.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A random model of features 0 … n - 1.
Model random_model(const ModelOptions& options, std::uint32_t n, std::uint64_t seed,
                   std::vector<std::uint32_t> fields = {0, 1, 7}) {
  std::vector<std::uint32_t> ids(n);
  for (std::uint32_t i = 0; i < n; ++i) ids[i] = i;
  Model model(options, Dictionary(ids), std::move(fields));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::size_t i = 0; i < model.weights().size(); ++i) {
    if (model.layout().is_weight(i)) model.weights()[i] = uniform(random);
  }
  return model;
}

struct Kind {
  ModelKind kind;
  int factors;
};
class Models : public testing::TestWithParam<Kind> {
 protected:
  ModelOptions options() const { return {.kind = GetParam().kind, .factors = GetParam().factors}; }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Models,
                         testing::Values(Kind{ModelKind::kLogistic, 8}, Kind{ModelKind::kSvm, 8},
                                         Kind{ModelKind::kFm, 1}, Kind{ModelKind::kFm, 8},
                                         Kind{ModelKind::kFm, 33}, Kind{ModelKind::kFfm, 4},
                                         Kind{ModelKind::kFfm, 7}, Kind{ModelKind::kFwfm, 8}),
                         [](const auto& i) {
                           return std::string(name(i.param.kind)) + std::to_string(i.param.factors);
                         });

constexpr const char* kRows =
    "1 0:0:1 1:2:0.5 7:3:-2\n0 1:1:1 1:4:3\n1\n0 0:0:0 7:2:0\n1 7:4:0.25 0:0:1 1:1:-1\n";

TEST_P(Models, HaveWeightsOfEachKindAndNoOthers) {
  const Model model(options(), Dictionary({1, 2, 3}), {0, 1, 7});
  const Layout& layout = model.layout();
  const auto k = static_cast<std::size_t>(GetParam().factors);
  const std::size_t blocks = GetParam().kind == ModelKind::kFfm ? 3 : 1;
  std::size_t expected = 1 + 3;  // bias, linear weights
  if (has_factors(GetParam().kind)) expected += 3 * blocks * k;
  if (GetParam().kind == ModelKind::kFwfm) expected += 9;
  std::size_t weights = 0;
  for (std::size_t i = 0; i < layout.size(); ++i) weights += layout.is_weight(i) ? 1 : 0;
  EXPECT_EQ(weights, expected);
  EXPECT_EQ(layout.size(), model.weights().size());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(model.weights().data()) % 64, 0u);
  EXPECT_EQ(layout.factors_begin() % 16, 0u);
}

TEST_P(Models, ComeBackFromAFileBitForBit) {
  const std::string path = testing::TempDir() + "motley_model_" + std::to_string(getpid());
  ModelOptions o = options();
  o.normalisation = Normalisation::kNone;
  o.optimizer = Optimizer::kFtrl;
  o.seed = 99;
  const Model model = random_model(o, 5, 14);
  model.save(path);
  const Model loaded = Model::load(path);
  std::remove(path.c_str());
  EXPECT_EQ(loaded.options().kind, o.kind);
  EXPECT_EQ(loaded.options().loss, model.options().loss);
  EXPECT_EQ(loaded.options().optimizer, Optimizer::kFtrl);
  EXPECT_TRUE(std::ranges::equal(loaded.fields(), model.fields()));
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
  EXPECT_TRUE(s.uniform);
  EXPECT_THAT(s.values, ElementsAre(0.6f, 0.f, 1.f)) << "one for each row";
  EXPECT_THAT(s.row_begin, ElementsAre(0, 1, 1, 2));
  EXPECT_EQ(s.unknown_entries, 2u);
}

TEST(Prepare, NumbersFieldsAndLeavesOutThoseUnknown) {
  const Model model({.kind = ModelKind::kFfm}, Dictionary({7, 8}), {2, 90});
  const Samples s = model.prepare(parse_text("1 2:7:1 90:8:1\n0 2:8:1 5:7:1\n", "t"));
  EXPECT_THAT(s.fields, ElementsAre(0, 1, 0));
  EXPECT_FALSE(s.complete);
  EXPECT_EQ(s.unknown_entries, 1u);
  EXPECT_TRUE(model.prepare(parse_text("1 2:7:1 90:8:1\n", "t")).complete);
  EXPECT_FALSE(model.prepare(parse_text("1 90:7:1 2:8:1\n", "t")).complete) << "out of order";
  EXPECT_THROW(model.prepare(parse_text("1 7:1\n", "t")), Error) << "libsvm has no fields";
}

TEST(Samples, ReorderRowsWithAllThatIsTheirs) {
  const Model model({.kind = ModelKind::kFfm, .normalisation = Normalisation::kNone},
                    Dictionary({7, 8}), {2, 90});
  Dataset data = parse_text("1 2:7:1 90:8:3\n0\n0 90:8:5\n", "t");
  data.weights = {1, 2, 3};
  Samples s = model.prepare(data);
  s.reorder(std::vector<std::uint64_t>{2, 0, 1});
  EXPECT_THAT(s.row_begin, ElementsAre(0, 1, 3, 3));
  EXPECT_THAT(s.labels, ElementsAre(0, 1, 0));
  EXPECT_THAT(s.weights, ElementsAre(3, 1, 2));
  EXPECT_THAT(s.slots, ElementsAre(1, 0, 1));
  EXPECT_THAT(s.fields, ElementsAre(1, 0, 1));
  EXPECT_THAT(s.values, ElementsAre(5, 1, 3));
}

// k = 50, 554,000 features and 86 fields once overflowed 32 bits in another program.
TEST(Layout, CountsBeyond32Bits) {
  const Layout layout = Layout::of({.kind = ModelKind::kFfm, .factors = 50}, 554'000, 86);
  EXPECT_EQ(layout.factors_of(554'000) - layout.factors_of(553'999), 2u * 86 * 64);
  EXPECT_GT(layout.size(), std::size_t{1} << 32);
  EXPECT_EQ(layout.size(), layout.factors_begin() + std::size_t{554'000} * 2 * 86 * 64);
}

TEST(Model, RefusesScoresThatAreNotFinite) {
  Model model({.kind = ModelKind::kLogistic, .normalisation = Normalisation::kNone},
              Dictionary({1}));
  model.weights()[model.layout().linear(0)] = 1e10f;
  EXPECT_THROW(model.scores(model.prepare(parse_text("1 1:1e38\n", "t"))), Error);
}

TEST(Model, RefusesOptionsOutOfRange) {
  for (const ModelOptions& o :
       {ModelOptions{.factors = 0}, ModelOptions{.factors = 257}, ModelOptions{.init_scale = NAN},
        ModelOptions{.init_scale = INFINITY}, ModelOptions{.initial_accumulator = 0}}) {
    EXPECT_THROW(Model(o, Dictionary({1})), Error);
  }
  EXPECT_THROW(model_kind("ffm9"), Error);
  EXPECT_THROW(loss_kind("cubic"), Error);
  EXPECT_THROW(optimizer_kind("lbfgs"), Error);
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
  void SetUp() override { save(random_model({}, 3, 5)); }
  void save(const Model& model) {
    model.save(path_);
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
  for (const std::vector<std::uint32_t>& fields : {std::vector<std::uint32_t>{0, 1, 7}, {}}) {
    SCOPED_TRACE(std::to_string(fields.size()) + " fields");
    save(random_model({}, 3, 5, fields));
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      std::string damaged = bytes_;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
      EXPECT_NE(error_of(damaged), "no error") << "byte " << i;
    }
    EXPECT_EQ(error_of(bytes_), "no error");
  }
}

TEST_F(ModelFile, NamesAForeignFileAndANewerVersion) {
  EXPECT_THAT(error_of("1 3:1 4:1\n" + std::string(100, '1')), HasSubstr("no Motley model"));
  std::string newer = bytes_;
  newer[8] = 5;
  EXPECT_THAT(error_of(newer), AllOf(HasSubstr("version 5"), HasSubstr("version 4")));
}

TEST(ModelFileErrors, NamesThePathThatCannotBeWrittenOrRead) {
  EXPECT_THROW(random_model({}, 1, 1).save("/nonexistent/m"), Error);
  EXPECT_THROW(Model::load("/nonexistent/m"), Error);
}

}  // namespace
}  // namespace motley::wide
