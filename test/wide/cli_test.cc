// Shows that motley-wide trains, predicts and evaluates on real data, that prediction from a saved
// model repeats the evaluation bit for bit, and that misuse and bad input end in the promised exit
// code with the fact on standard error. Runs the program itself.
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
#include "wide/auc.h"
#include "wide/logistic.h"
#include "wide/model.h"
#include "wide/reader.h"

namespace motley::wide {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

struct Outcome {
  int code = -1;  // exit code; -1 if a signal ended it
  std::string out;
  std::string err;
};

class MotleyWide : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / fmt::format("motley_wide_{}", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Runs the program in the test's folder, by `launcher` if there is one.
  Outcome run(const std::string& arguments, const std::string& launcher = "") const {
    const std::string command = fmt::format("cd '{}' && {} '{}' {} >out.txt 2>err.txt",
                                            folder_.string(), launcher, MOTLEY_WIDE, arguments);
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read("out.txt"), read("err.txt")};
  }
  void write_small() const {
    std::string text;
    for (int i = 0; i < 200; ++i) text += i % 2 == 0 ? "1 1:1 3:1\n" : "0 2:1 3:1\n";
    write("small.txt", text);
  }

  std::filesystem::path folder_;
};

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
  for (const char* sync : {"all_reduce", "partial_reduce"}) {
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

// Rank 0, which reports otherwise, is killed: the first that is left saves what the others learnt.
TEST_F(MotleyWide, SavesTheModelWithoutRankZero) {
  write_small();
  const std::string train = fmt::format(
      "cd '{}' && echo process $$ && exec '{}' train small.txt small.txt -e 300 --patience 300 "
      "--sync_rows 8 --sync partial_reduce -o m",
      folder_.string(), MOTLEY_WIDE);
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

TEST_F(MotleyWide, ExitsWith2AndSaysWhyWhenMisused) {
  write_small();
  const struct {
    const char* arguments;
    const char* fact;
  } cases[] = {{"", "a command is missing"},
               {"trian small.txt", "trian"},
               {"train", "TRAIN"},
               {"train a b c", "VALIDATION"},
               {"train small.txt --epoch 3", "--epoch"},
               {"train small.txt --epochs three", "three"},
               {"train small.txt --epochs", "needs a value"},
               {"train small.txt --format csv", "csv"},
               {"train small.txt --sync gossip", "gossip"},
               {"train small.txt -m ffm", "lr or fm"},
               {"train small.txt -k 1000", "256"},
               {"train small.txt --lr 0", "learning_rate"},
               {"train small.txt --lr nan", "learning_rate"},
               {"predict m", "MODEL and DATA"},
               {"predict m d --lr 1", "--lr"},
               {"eval m", "MODEL and DATA"}};
  for (const auto& c : cases) {
    const Outcome o = run(c.arguments);
    EXPECT_EQ(o.code, 2) << c.arguments;
    EXPECT_THAT(o.err, AllOf(HasSubstr("motley-wide: "), HasSubstr(c.fact))) << c.arguments;
    EXPECT_THAT(o.out, IsEmpty()) << c.arguments;
  }
}

TEST_F(MotleyWide, ExitsWith1AndNamesThePlaceOnBadInput) {
  write_small();
  ASSERT_EQ(run("train small.txt -q -o m").code, 0);
  write("empty.txt", "");
  write("nan.txt", "1 1:1\n0 2:nan\n");
  write("index.txt", "1 1:1\n\n0 1099511627776:1\n");
  write("binary.txt", std::string("\x7f"
                                  "ELF\0\0\1",
                                  7));
  write("huge.txt", "1 1:3e38\n0 1:3e38\n");
  write("cut.model", read("m").substr(0, 60));
  const struct {
    const char* arguments;
    std::vector<const char*> facts;
  } cases[] = {{"train missing.txt", {"missing.txt"}},
               {"train empty.txt", {"empty.txt", "no rows"}},
               {"train nan.txt", {"nan.txt:2:", "2:nan"}},
               {"train small.txt nan.txt", {"nan.txt:2:"}},
               {"train index.txt", {"index.txt:3:", "1099511627776", "4294967295"}},
               {"train binary.txt", {"binary.txt:1:"}},
               {"train huge.txt --nonormalise", {"diverged"}},
               {"train small.txt -o /nonexistent/m", {"/nonexistent/m"}},
               {"predict small.txt small.txt", {"small.txt", "no Motley model"}},
               {"predict cut.model small.txt", {"cut.model", "truncated"}},
               {"eval m nan.txt", {"nan.txt:2:"}},
               {"predict m small.txt -o /nonexistent/p", {"/nonexistent/p"}},
               {"predict m small.txt -o /dev/full", {"/dev/full"}},
               {"train small.txt -q -o /dev/full", {"/dev/full"}},  // and it stays a device
               {"eval m small.txt 2>err.txt >/dev/full #", {"standard output"}}};
  for (const auto& c : cases) {
    const Outcome o = run(c.arguments);
    EXPECT_EQ(o.code, 1) << c.arguments << "\n" << o.err;
    for (const char* fact : c.facts) EXPECT_THAT(o.err, HasSubstr(fact)) << c.arguments;
    EXPECT_THAT(o.out, testing::Not(HasSubstr("nan"))) << c.arguments;
  }
}

TEST_F(MotleyWide, HelpOfEachCommandFitsAScreen) {
  for (const char* arguments : {"--help", "train --help", "predict -h", "eval --help"}) {
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
