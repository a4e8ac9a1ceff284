// Shows that motley-wide trains, predicts and evaluates on real data, that prediction from a saved
// model repeats the evaluation bit for bit. Runs the program itself.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "test/support/program_run.h"
#include "test/wide/motley_wide.h"
#include "wide/auc.h"
#include "wide/loss.h"
#include "wide/model.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(MotleyWide, PredictionRepeatsTheEvaluationBitForBit) {
  const std::string train = MOTLEY_A9A "/a9a";
  const std::string test = MOTLEY_A9A "/a9a.t";
  const Outcome trained = run(fmt::format("train {} {} -m fm --epochs=2 -o fm.model", train, test));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_THAT(trained.err, IsEmpty()) << "no progress line where stderr is no terminal";
  const Outcome evaluated = run("eval fm.model " + test);
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  const std::string result = evaluated.out.substr(0, evaluated.out.find('\n'));
  EXPECT_THAT(trained.out, HasSubstr("\n" + result + " ")) << evaluated.out;

  ASSERT_EQ(run("predict fm.model " + test + " -o probabilities.txt").code, 0);
  const Model model = Model::load(path("fm.model"));
  const Samples samples = model.prepare(read_file(test));
  const std::vector<float> scores = model.scores(samples);
  std::istringstream lines(read("probabilities.txt"));
  for (std::size_t r = 0; r < scores.size(); ++r) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    ASSERT_EQ(std::strtof(line.c_str(), nullptr), LogisticLoss::probability(scores[r])) << r;
  }
  std::string line;
  EXPECT_FALSE(std::getline(lines, line)) << "more predictions than rows";
}

TEST_F(MotleyWide, TakesFlagsInEveryForm) {
  write_small();
  for (const char* flags : {"-m lr", "--m=lr", "--model lr", "--model=lr", "-model lr"}) {
    ASSERT_EQ(run(std::string("train small.txt -q -e 3 ") + flags + " -o m").code, 0) << flags;
    EXPECT_EQ(Model::load(path("m")).options().kind, ModelKind::kLogistic) << flags;
  }
  ASSERT_EQ(run("train small.txt --nonormalise -k 5 -e 1 --seed 7").code, 0);
  const Model model = Model::load(path("small.txt.model"));
  EXPECT_EQ(model.options().factors, 5);
  EXPECT_EQ(model.options().seed, 7u);
  EXPECT_EQ(model.options().normalisation, Normalisation::kNone);
}

// Every kind of model: what a saved one predicts is what training evaluated, in hinge and squared
// loss too; and a deterministic model does not depend on the number of threads.
TEST_F(MotleyWide, TrainsEveryKindOnThreads) {
  std::string text;
  for (int i = 0; i < 400; ++i) {
    text += fmt::format("{} 0:{}:1 1:{}:1\n", (i % 2 + i / 2 % 2) % 2, i % 2, 2 + i / 2 % 2);
  }
  write("xor.txt", text);
  for (const char* flags :
       {"-m ffm -k 4", "-m fwfm", "-m fm --optimizer adam -r 0.01", "-m fm --optimizer ftrl",
        "-m fm --loss hinge", "-m fm --loss squared", "-m ffm --loss squared_hinge"}) {
    const Outcome o = run(fmt::format("train xor.txt xor.txt {} -e 40 --threads 2 -o m", flags));
    ASSERT_EQ(o.code, 0) << flags << o.err;
    const Outcome e = run("eval m xor.txt");
    const std::string result = e.out.substr(0, e.out.find('\n'));
    EXPECT_THAT(o.out, HasSubstr("\n" + result + " ")) << flags << e.out;
    if (std::string(flags).find("--loss squared") == std::string::npos) {
      EXPECT_THAT(result, HasSubstr("accuracy 1.0")) << flags;
    }
    run(fmt::format("train xor.txt {} -q -e 2 --deterministic --threads 1 -o one", flags));
    run(fmt::format("train xor.txt {} -q -e 2 --deterministic --threads 3 -o three", flags));
    EXPECT_FALSE(read("one").empty());
    EXPECT_EQ(read("one"), read("three")) << flags;
  }
  EXPECT_THAT(run("train small.txt -m ffm").err, HasSubstr("small.txt"));
  write_small();
  EXPECT_THAT(run("train small.txt -m ffm").err, HasSubstr("libffm"));
}

TEST_F(MotleyWide, LearnsTargetsBySquaredLoss) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("{} {}:1\n", 1 + i % 5, i % 5);
  write("ratings.txt", text);
  const Outcome o = run("train ratings.txt ratings.txt -m lr --loss squared -e 50 -r 0.5 -o m");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("RMSE 0.0"));
  std::istringstream lines(run("predict m ratings.txt").out);
  float first = 0;
  lines >> first;
  EXPECT_NEAR(first, 1, 0.1);
}

TEST_F(MotleyWide, GivesTheSameModelForTheSameSeed) {
  write_small();
  run("train small.txt -e 2 -s 3 -o a");
  run("train small.txt -e 2 -s 3 -o b");
  run("train small.txt -e 2 -s 4 -o c");
  EXPECT_EQ(read("a"), read("b"));
  EXPECT_NE(read("a"), read("c"));
}

// 200 rows on 3 workers: shares of unlike size.
TEST_F(MotleyWide, TrainsWithSeveralWorkers) {
  write_small();
  for (const char* sync : {"all_reduce", "local_sgd", "partial_reduce", "ad_psgd", "backup_workers",
                           "parameter_server", "eager_solo", "eager_majority", "wait_avoiding"}) {
    const Outcome o =
        run(fmt::format("train small.txt small.txt -e 6 --sync_rows 8 --sync {} -o m", sync),
            MOTLEY_RUN " -n 3 --");
    EXPECT_EQ(o.code, 0) << sync << "\n" << o.err;
    EXPECT_THAT(o.out, HasSubstr("[0] log loss ")) << sync;
    EXPECT_THAT(o.out, testing::Not(HasSubstr("[1]"))) << "rank 0 alone reports";
    const Outcome e = run("eval m small.txt");
    EXPECT_THAT(o.out, HasSubstr(e.out.substr(0, e.out.find('\n')))) << sync;
    EXPECT_THAT(e.out, HasSubstr("AUC 1.0")) << sync;
  }
}

// The model's features are on three workers; as they are one model, on one worker it is the same.
TEST_F(MotleyWide, TrainsModelsThatAreSpreadOverWorkers) {
  write_small();
  const std::string train = "train small.txt small.txt -e 6 --shard --shard_hot 2 -o m -b ";
  for (const char* more : {"", " --shard_early", " --shard_copies 1", " --sync partial_reduce",
                           " --sync partial_reduce --shard_copies 1"}) {
    const Outcome o = run(train + "20" + more, MOTLEY_RUN " -n 3 --");
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("[0] log loss ")) << more;
    const Outcome e = run("eval m small.txt");
    EXPECT_THAT(o.out, HasSubstr(e.out.substr(0, e.out.find('\n')))) << more;
    EXPECT_THAT(e.out, HasSubstr("AUC 1.0")) << more;
    if (*more != 0) continue;
    const Outcome one = run(train + "60");
    EXPECT_THAT(o.out, HasSubstr(one.out.substr(0, one.out.find('\n'))));
  }
  EXPECT_EQ(run(train + "20 --shard_copies 0").code, 2);
  EXPECT_EQ(run(train + "20 --online").code, 2);
  EXPECT_EQ(run(train + "20 --sync ad_psgd").code, 2);
}

TEST_F(MotleyWide, TrainsFromDisk) {
  write_small();
  const Outcome o = run("train small.txt small.txt -e 6 --disk --disk_rows 50 -o m");
  EXPECT_EQ(o.code, 0) << o.err;
  const Outcome e = run("eval m small.txt");
  EXPECT_THAT(o.out, HasSubstr(e.out.substr(0, e.out.find('\n'))));
  EXPECT_THAT(e.out, HasSubstr("AUC 1.0"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "m.parts"));
  EXPECT_EQ(run("train small.txt --disk --online").code, 2);
  EXPECT_EQ(run("train small.txt --disk --holdout 0.1").code, 2);
}

// Rank 0, which reports otherwise, is killed: the first that is left saves what the others learnt.
class MotleyWideKilled : public MotleyWide, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Ways, MotleyWideKilled,
                         testing::Values("--sync_rows 8 --sync partial_reduce",
                                         "--shard --shard_hot 2 -b 20",
                                         "--shard --shard_hot 2 -b 20 --sync partial_reduce"));
TEST_P(MotleyWideKilled, SavesTheModelWithoutRankZero) {
  write_small();
  const std::string train = fmt::format(
      "cd '{}' && echo process $$ && exec '{}' train small.txt small.txt -e 120 --patience 120 "
      "{} -o m",
      folder_.string(), MOTLEY_WIDE, GetParam());
  ProgramRun job({MOTLEY_RUN, "-n", "3", "--elastic", "--", "/bin/sh", "-c", train});
  const pid_t victim = std::stoi(job.await("[0] process "));
  job.await("[0] epoch ");
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  const auto result = job.wait();
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("[1] log loss ")) << result.error;
  EXPECT_THAT(result.out, HasSubstr("saved to m"));
  EXPECT_THAT(run("eval m small.txt").out, HasSubstr("AUC 1.0"));
}

// CSV by its header, compressed, from standard input, in several files and as a cache: one model.
TEST_F(MotleyWide, ReadsColumnsInEveryWay) {
  std::string a = "click,site,price\n";
  std::string b = a;
  for (int i = 0; i < 300; ++i) {
    (i < 150 ? a : b) += fmt::format("{},{},{}\n", i % 2, i % 2 == 0 ? "x" : "y", i);
  }
  write("a.csv", a);
  write("b.csv", b);
  write("all.csv", a + b.substr(b.find('\n') + 1));
  const std::string schema = "--schema price:log -q -o ";
  ASSERT_EQ(run("train all.csv " + schema + "m1").code, 0);
  ASSERT_EQ(run("train a.csv,b.csv " + schema + "m2").code, 0);
  ASSERT_EQ(run("train - <all.csv " + schema + "m3").code, 0);
  ASSERT_EQ(run("train all.csv --cache " + schema + "m4").code, 0);
  ASSERT_EQ(run("train all.csv --cache " + schema + "m5").code, 0);
  ASSERT_EQ(run("convert all.csv " + schema + "c").code, 0);
  ASSERT_EQ(run("train c -q -o m6").code, 0);
  for (const char* other : {"m2", "m3", "m4", "m5", "m6"}) EXPECT_EQ(read("m1"), read(other));
  // Other order, no label, a column more.
  write("new.csv", "price,more,site\n5,?,x\n5,?,y\n");
  std::istringstream lines(run("predict m1 new.csv").out);
  float x = 1;
  float y = 0;
  lines >> x >> y;
  EXPECT_LT(x, 0.2f);
  EXPECT_GT(y, 0.8f);
  write("bad.csv", "site,price\nx,3\nx\n");
  EXPECT_THAT(run("predict m1 bad.csv").err, HasSubstr("bad.csv:3: has 1 cells"));
  write("w", std::string(300 * 2, '1'));
  EXPECT_THAT(run("train all.csv --weights w").err, HasSubstr("w:1:"));
}

TEST_F(MotleyWide, FollowsALinkToTheModel) {
  write_small();
  write("old", "");
  std::filesystem::create_symlink("old", folder_ / "link");
  ASSERT_EQ(run("train small.txt -q -e 2 -o link").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link"));
  EXPECT_EQ(run("eval old small.txt").code, 0);
}

TEST_F(MotleyWide, PredictsRowsWithoutLabelsAndWarnsOfUnknownFeatures) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  write("new.txt", "1:1 3:1\n\n2:1 77:1\n0 2:1\n");
  const Outcome o = run("predict m new.txt");
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 3);
  EXPECT_THAT(o.err, HasSubstr("1 of 5 entries"));
  EXPECT_THAT(run("predict m new.txt -q").err, IsEmpty());
}

// Its steps overshot: 0.9 by the rate of the other losses.
TEST_F(MotleyWide, TrainsAnSvmBySgd) {
  const std::string data = fmt::format("{0}/a9a {0}/a9a.t", MOTLEY_A9A);
  const Outcome o = run("train " + data + " -m svm --optimizer sgd -q -e 2 -o m");
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_LT(std::stod(o.out.substr(o.out.find("loss ") + 5)), 0.44) << o.out;
}

TEST_F(MotleyWide, HelpOfEachCommandFitsAScreen) {
  for (const char* arguments : {"--help", "formats", "train --help", "predict -h", "eval --help",
                                "convert --help", "inspect --help", "serve --help"}) {
    const Outcome o = run(arguments);
    EXPECT_EQ(o.code, 0);
    EXPECT_LE(std::count(o.out.begin(), o.out.end(), '\n'), 24) << arguments;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
  EXPECT_THAT(run("--version").out, HasSubstr("motley-wide 0."));
}

}  // namespace
}  // namespace motley::wide
