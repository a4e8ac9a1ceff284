// What users of other trainers of wide models ran into, as they reported it, by number: each test
// says what happened there, and shows what happens here.
#include <gmock/gmock.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "comm/error.h"
#include "test/wide/motley_wide.h"
#include "wide/auc.h"
#include "wide/model.h"
#include "wide/reader.h"
#include "wide/trainer.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::Each;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::Not;

class Scenario : public MotleyWide {
 protected:
  void SetUp() override {
    MotleyWide::SetUp();
    write_small();
    write("small.ffm", "1 0:1:1 1:3:1\n0 0:2:1 1:3:1\n1 0:1:1 1:4:1\n0 0:2:1 1:4:1\n");
  }
  // Both as training file and as the file to predict.
  void expect_refused(const std::string& text, const std::vector<const char*>& facts) const {
    write("bad.txt", text);
    ASSERT_EQ(run("train small.txt -q -o m").code, 0);
    for (const char* command :
         {"train bad.txt -q -o bad", "train small.txt bad.txt -q -o bad", "eval m bad.txt"}) {
      const Outcome o = run(command);
      EXPECT_EQ(o.code, 1) << command;
      for (const char* fact : facts) EXPECT_THAT(o.err, HasSubstr(fact)) << command;
      EXPECT_THAT(o.out, Not(HasSubstr("nan"))) << command;
    }
    EXPECT_FALSE(std::filesystem::exists(path("bad")));
  }
  std::vector<float> predictions(const std::string& arguments) const {
    std::istringstream lines(run("predict " + arguments).out);
    std::vector<float> all;
    for (float p = 0; lines >> p;) all.push_back(p);
    return all;
  }
};

// A short or malformed row ended in a segmentation fault.
TEST_F(Scenario, N01_MalformedRowsAreErrorsThatNameFileLineAndToken) {
  expect_refused("1 1:1\n0 2\n", {"bad.txt:2:", "\"2\"", "column 3"});
  expect_refused("1 1:1\n0 2:\n", {"bad.txt:2:", "\"2:\""});
  write("label_only.txt", "1\n0 1:1\n0\n");
  EXPECT_EQ(run("train label_only.txt -q -o m").code, 0) << "a label alone is a row";
}

// Features x fields x k above 2^32 overflowed, and ended in a segmentation fault.
TEST_F(Scenario, N02_SizesAreCountedIn64Bits) {
  const Layout layout = Layout::of({.kind = ModelKind::kFfm, .factors = 50}, 554'000, 86);
  EXPECT_EQ(layout.factors_stride(), 2u * 86 * 64);
  EXPECT_GT(layout.size(), std::size_t{1} << 32);
  EXPECT_EQ(layout.factors_of(553'999), layout.factors_begin() + 553'999ull * 2 * 86 * 64);
}

// Too large a model ended in a segmentation fault, or the machine's end of memory.
TEST_F(Scenario, N03_AModelThatDoesNotFitIsRefusedWithItsSize) {
  std::vector<std::uint32_t> ids(200'000);
  std::vector<std::uint32_t> fields(1000);
  for (std::uint32_t i = 0; i < ids.size(); ++i) ids[i] = i;
  for (std::uint32_t i = 0; i < fields.size(); ++i) fields[i] = i;
  try {
    Model({.kind = ModelKind::kFfm, .factors = 256}, Dictionary(ids), fields);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("200000 features"), HasSubstr("GiB")));
  }
}

// The loss became NaN: rows of zeros, huge values, raw numbers; with exit code 0.
TEST_F(Scenario, N05_NoLossIsNan) {
  expect_refused("1 1:1\n0 2:nan\n", {"bad.txt:2:", "2:nan"});
  expect_refused("1 1:inf\n", {"bad.txt:1:"});
  expect_refused("1 1:1e39\n", {"bad.txt:1:", "3.4e38"});
  for (const char* text :
       {"1 1:0 2:0\n0 1:1\n", "1 1:3e38\n0 2:3e38 1:1\n", "1 1:1e20 2:7\n0 2:1\n"}) {
    write("t", text);
    const Outcome o = run("train t t -m fm -o m");
    EXPECT_EQ(o.code, 0) << text << o.err;
    EXPECT_THAT(o.out, Not(HasSubstr("nan"))) << text;
    EXPECT_THAT(predictions("m t"), Each(AllOf(Ge(0), Le(1)))) << text;
  }
  write("t", "1 1:3e38\n0 1:3e38\n");
  EXPECT_EQ(run("train t --nonormalise -o bad").code, 1);
}

// Precision was -nan where no row was predicted to be positive.
TEST_F(Scenario, N06_AFigureWithoutADenominatorIsNone) {
  write("none", "0 2:1\n0 2:1 3:1\n");
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  const Outcome o = run("eval m none");
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("precision none"), HasSubstr("recall none"),
                           HasSubstr("AUC none"), Not(HasSubstr("nan"))));
}

// The same seed gave other results, between runs and between fits in one process.
TEST_F(Scenario, N08_TheSameSeedGivesTheSameModel) {
  const auto fit = [&] {
    TrainingRun training(read_file(path("small.txt")), std::nullopt, {.epochs = 3, .seed = 7});
    while (training.next_step()) {
    }
    return std::vector<float>(training.model().weights().begin(), training.model().weights().end());
  };
  EXPECT_EQ(fit(), fit());
  run("train small.txt -q -e 3 --deterministic -t 1 -o a");
  run("train small.txt -q -e 3 --deterministic -t 3 -o b");
  EXPECT_EQ(read("a"), read("b"));
}

// Predictions were scores, unless a flag was known.
TEST_F(Scenario, N10_PredictionsAreProbabilities) {
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  EXPECT_THAT(predictions("m small.txt"), Each(AllOf(Ge(0), Le(1))));
}

// Prediction from the model's text failed obscurely.
TEST_F(Scenario, N12_TheTextOfAModelIsNamedAsSuch) {
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  ASSERT_EQ(run("convert m -o m.txt").code, 0);
  const Outcome o = run("predict m.txt small.txt");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, AllOf(HasSubstr("m.txt"), HasSubstr("as text"), HasSubstr("convert")));
}

// Training ran out of memory without a word before.
TEST_F(Scenario, N13_DataThatDoesNotFitAreRefusedWithTheirSize) {
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "1 1:1 2:1\n";
  write("large", text);
  try {
    read_file(path("large"), {.memory_limit_bytes = 1 << 20});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("large"), HasSubstr("GiB")));
  }
}

// A warm start with new features wrote beyond the table.
TEST_F(Scenario, N14_AWarmStartGrows) {
  write("more", "1 900:1 1:1\n0 901:1\n");
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  ASSERT_EQ(run("train more -q -i m -o m2").code, 0);
  EXPECT_EQ(Model::load(path("m2")).layout().slots, Model::load(path("m")).layout().slots + 2);
}

// In a container without $USER the program aborted at its start.
TEST_F(Scenario, N15_NeedsNothingOfTheEnvironment) {
  // UCX 1.13 crashes under ThreadSanitizer unless its hooks are off (ucx issue 8475).
  const std::string bare = "env -i UCX_MEM_MMAP_HOOK_MODE=none";
  EXPECT_EQ(run("train small.txt -q -o m", bare).code, 0);
  EXPECT_EQ(run("predict m small.txt", bare).code, 0);
}

// Cross-validation, and rows without fields, ended in segmentation faults.
TEST_F(Scenario, N16_CrossValidatesAndAsksForFields) {
  EXPECT_EQ(run("train small.ffm -m ffm --folds 2 -q").code, 0);
  const Outcome o = run("train small.txt -m ffm -o bad");
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("field:index:value"));
}

// Index 0 was an error.
TEST_F(Scenario, N18_IndexZeroIsAnIndex) {
  write("zero", "1 0:1\n0 1:1\n");
  ASSERT_EQ(run("train zero -q -o m -m lr").code, 0);
  EXPECT_GT(predictions("m zero")[0], predictions("m zero")[1]);
}

// Where counting from 0 was taken for counting from 1, all features moved by one.
TEST_F(Scenario, N19_IndicesMeanTheSameFromZeroAndFromOne) {
  std::string zero;
  std::string one;
  for (int i = 0; i < 100; ++i) {
    zero += std::to_string(i % 2) + " " + std::to_string(i % 5) + ":1\n";
    one += std::to_string(i % 2) + " " + std::to_string(i % 5 + 1) + ":1\n";
  }
  write("zero", zero);
  write("one", one);
  ASSERT_EQ(run("train zero -q -o m0").code, 0);
  ASSERT_EQ(run("train one -q -o m1").code, 0);
  EXPECT_EQ(predictions("m0 zero"), predictions("m1 one"));
}

// Unsorted and repeated indices gave wrong results in silence.
TEST_F(Scenario, N20_UnsortedIsTheSameAndTwiceIsAnError) {
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  write("a", "1:1 3:0.5\n");
  write("b", "3:0.5 1:1\n");
  EXPECT_EQ(predictions("m a"), predictions("m b"));
  expect_refused("1 1:1 2:1 1:1\n", {"bad.txt:1:", "index 1 appears twice"});
}

// Blank lines became examples, long lines were split or overran a buffer.
TEST_F(Scenario, N21_BlankLinesAreNoRowsAndLinesHaveAnyLength) {
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  std::string line = "1:1";
  for (int i = 10; i < 200'000; ++i) line += " " + std::to_string(i) + ":1";
  write("t", "\n1:1\n\n" + line + "\n2:1\n\n\n");
  EXPECT_EQ(predictions("m t -q").size(), 3u);
}

// "NaN is not a good float, replacing with 0", in a file of a million lines.
TEST_F(Scenario, N22_ABadNumberIsNamedWithItsLine) {
  expect_refused("1 1:1\n\n# comment\n0 3:1 2:NaN\n", {"bad.txt:4:", "\"2:NaN\" at column 7"});
}

// A cache of other options, or of another version, was used, or crashed.
TEST_F(Scenario, N24_ACacheIsUsedOnlyForWhatItWasMadeOf) {
  ASSERT_EQ(run("train small.txt --cache -q -o a").code, 0);
  ASSERT_EQ(run("train small.txt --cache --bits 3 -q -o b").code, 0);
  ASSERT_EQ(run("train small.txt --bits 3 -q -o c").code, 0);
  EXPECT_NE(read("a"), read("b"));
  EXPECT_EQ(read("b"), read("c"));
  std::string cache = read("small.txt.cache");
  cache[8] = 77;  // of a version to come
  write("v.cache", cache);
  EXPECT_THAT(run("train v.cache -o bad").err, HasSubstr("version 77"));
  std::string text = read("small.txt");
  const auto time = std::filesystem::last_write_time(path("small.txt"));
  text[2] = '0';  // an index: neither size nor time change
  write("small.txt", text);
  std::filesystem::last_write_time(path("small.txt"), time);
  ASSERT_EQ(run("train small.txt --cache -q -o a").code, 0);
  ASSERT_EQ(run("train small.txt -q -o c").code, 0);
  EXPECT_EQ(read("a"), read("c"));
  cache = read("small.txt.cache");
  cache[cache.size() / 2] ^= 1;
  write("small.txt.cache", cache);
  const Outcome told = run("train small.txt --cache -o a");
  EXPECT_EQ(told.code, 0);
  EXPECT_THAT(told.err, AllOf(HasSubstr("small.txt.cache: is damaged"), HasSubstr("made anew")));
  EXPECT_EQ(read("a"), read("c"));
  ASSERT_EQ(run("train small.txt --bits 3 -q -o c").code, 0);
  write("small.txt.cache", cache.substr(0, 30));
  ASSERT_EQ(run("train small.txt --cache --bits 3 -q -o b").code, 0);
  EXPECT_EQ(read("b"), read("c"));
}

// A blank in a feature's name made the model unreadable; the model forgot k; threads raced.
TEST_F(Scenario, N26_NamesMayBeAnyTextAndModelsKnowTheirOptions) {
  std::string text = "click,query term\n";
  for (int i = 0; i < 200; ++i) text += i % 2 == 0 ? "1,red shoes\n" : "0,\"a: \"\"b\"\", c\"\n";
  write("t.csv", text);
  ASSERT_EQ(run("train t.csv -q -k 3 -m fm -t 3 -o m").code, 0);
  const std::vector<float> p = predictions("m t.csv");
  EXPECT_GT(p.at(0), 0.8);
  EXPECT_LT(p.at(1), 0.2);
  EXPECT_EQ(Model::load(path("m")).options().factors, 3);
}

// Some models could not be saved; prediction wanted labels, or to train again.
TEST_F(Scenario, N27_EveryModelIsSavedAndPredictsWithoutLabels) {
  write("new.ffm", "0:1:1 1:3:1\n");
  for (const char* kind : {"lr", "svm", "fm", "ffm", "fwfm", "fm --loss squared"}) {
    ASSERT_EQ(run(std::string("train small.ffm -q -o m -m ") + kind).code, 0) << kind;
    EXPECT_EQ(predictions("m new.ffm").size(), 1u) << kind;
  }
}

// Large values saturated all predictions at 0 or 1.
TEST_F(Scenario, N28_LargeValuesDoNotSaturate) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += std::to_string(i % 3 == 0 ? 1 : 0) + " 1:" + std::to_string(1'000'000 + i) +
            " 2:" + std::to_string(i % 3 == 0 ? 2'000'000 : 1'000'000) + "\n";
  }
  write("t", text);
  ASSERT_EQ(run("train t -q -m fm -o m").code, 0);
  EXPECT_THAT(predictions("m t"), Each(AllOf(testing::Gt(0.001f), testing::Lt(0.999f))));
}

// A key beyond the table was an illegal memory access, after hours.
TEST_F(Scenario, N29_AnyKeyIsLookedUpBeforeItIsUsed) {
  write("t", "1 4294967295:1 0:1\n0 4294967294:1\n");
  ASSERT_EQ(run("train t -q -o m").code, 0);
  write("new", "4294967293:1\n7:1 4294967295:1\n");
  EXPECT_EQ(predictions("m new -q").size(), 2u);
  expect_refused("1 4294967296:1\n", {"bad.txt:1:", "4294967295"});
}

// What features not seen in training do was not said.
TEST_F(Scenario, N30_UnseenFeaturesCountAsZeroAndAreTold) {
  ASSERT_EQ(run("train small.txt -q -m lr --nonormalise -o m").code, 0);
  write("seen", "1:1\n");
  write("unseen", "1:1 500:3\n");
  EXPECT_EQ(predictions("m seen"), predictions("m unseen"));
  EXPECT_THAT(run("predict m unseen").err, HasSubstr("1 of 2 entries"));
}

}  // namespace
}  // namespace motley::wide
