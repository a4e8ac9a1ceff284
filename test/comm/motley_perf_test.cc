// motley-perf as built: a small run on two ranks with all that its table and its JSON lines
// promise, and wrong use, which is named before a rank is started.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/device.h"
#include "test/support/program_run.h"

namespace motley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

ProgramRun::Result run(std::vector<std::string> words) {
  words.insert(words.begin(), MOTLEY_PERF);
  return ProgramRun(std::move(words)).wait();
}

class JsonFile {
 public:
  JsonFile()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("motley_perf_" + std::to_string(getpid()) + ".jsonl")) {}
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;
  ~JsonFile() { std::filesystem::remove(path_); }

  std::string path() const { return path_.string(); }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> result;
    std::ifstream in(path_);
    for (std::string line; std::getline(in, line);) result.push_back(nlohmann::json::parse(line));
    return result;
  }

 private:
  std::filesystem::path path_;
};

TEST(MotleyPerf, MeasuresTwoRanksAndWritesJsonLines) {
  const JsonFile json;
  const auto result = run({"-n", "2", "-b", "4", "-e", "4K", "-f", "1024", "--collectives=all",
                           "--cap", "0.02", "--json", json.path()});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("2 ranks"), HasSubstr("busbw"), HasSubstr("all_reduce")));

  const auto lines = json.lines();
  ASSERT_GT(lines.size(), 6u);
  const auto& heading = lines.front();
  EXPECT_EQ(heading.at("line"), "heading");
  EXPECT_EQ(heading.at("ranks"), 2);
  EXPECT_THAT(heading.at("library").get<std::string>(), HasSubstr("Motley"));
  EXPECT_THAT(heading.at("flags").get<std::string>(), HasSubstr("-f 1024"));
  EXPECT_GT(heading.at("machine").at("cores"), 0);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto& cell = lines[i];
    EXPECT_EQ(cell.at("line"), "cell");
    EXPECT_EQ(cell.at("wrong"), 0) << cell;
    EXPECT_GT(cell.at("time_us"), 0) << cell;
    EXPECT_GE(cell.at("p99_us"), cell.at("p50_us")) << cell;
    EXPECT_GE(cell.at("samples"), 1) << cell;
  }
  const auto& last_of_first = lines[2];  // all_reduce out of place, 4 KiB
  EXPECT_EQ(last_of_first.at("bytes"), 4096);
  EXPECT_EQ(last_of_first.at("count"), 1024);
  EXPECT_NEAR(last_of_first.at("algbw_gbs").get<double>(),
              4096 / last_of_first.at("time_us").get<double>() / 1e3, 1e-9);
}

TEST(MotleyPerf, RunsRanksAsThreadsToo) {
  const auto result = run({"-n", "3", "--transport", "inproc", "--algorithm", "ring", "-b", "1K",
                           "-e", "1K", "--dtypes", "all", "--ops", "all", "--cap", "0.005"});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("3 ranks"), HasSubstr("bfloat16"), HasSubstr("ring")));
}

// No peer is there: Motley is measured all the same, and no goal against a peer counts as met.
TEST(MotleyPerf, CountsPeersThatAreNotThereAsNotBeaten) {
  const JsonFile json;
  const auto result = run({"--versus", "--ranks", "2", "-b", "4", "-e", "4", "--rounds", "1",
                           "--cap", "0.01", "--peers", "/nonexistent", "--json", json.path()});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("not run, so not beaten: Open MPI ucx: /nonexistent"),
                                HasSubstr("all_reduce on 2 ranks, in place"),
                                HasSubstr("   0 of 2 "), HasSubstr("nothing to compare with")));
  const auto lines = json.lines();
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines[1].at("competitor"), "Motley private");
  EXPECT_EQ(lines[1].at("ranks"), 2);
  EXPECT_GE(lines[1].at("probe_before_ns"), 0);
}

// Each of our runs fails; what was not measured is not taken for slow or fast, and the code says
// it.
TEST(MotleyPerf, FailsWhereOurOwnRunsOfAComparisonFail) {
  const auto result = ProgramRun({"/usr/bin/env", "MOTLEY_ALGORITHM=spiral", MOTLEY_PERF,
                                  "--versus", "--ranks", "2", "-b", "4", "-e", "4", "--rounds", "1",
                                  "--cap", "0.01", "--peers", "/nonexistent"})
                          .wait();
  EXPECT_EQ(result.code, 1) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Motley private"), HasSubstr("spiral"),
                                HasSubstr("not measured  all_reduce of 4 B on 2 ranks")));
}

TEST(MotleyPerf, ExplainsWhichAlgorithmACallTakes) {
  const auto result = run({"-n", "2", "--explain", "-b", "4", "-e", "4M", "-f", "1048576"});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("all_reduce"), HasSubstr("ring"), HasSubstr("direct"),
                                HasSubstr(" us")));
}

TEST(MotleyPerf, SetsPricesBesideWhatEveryAlgorithmTakes) {
  const auto result =
      run({"--model", "--ranks", "2", "--rounds", "1", "-b", "4K", "-e", "4K", "--cap", "0.01"});
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("  ring "), HasSubstr("of 1 points"),
                    HasSubstr("2 ranks: order right at "), HasSubstr("median error of a price: ")));
}

TEST(MotleyPerf, NamesWrongUseBeforeItStartsAnything) {
  const struct {
    std::vector<std::string> words;
    const char* fact;
  } cases[] = {{{"-b", "5Q"}, "5Q"},
               {{"-b", "4K", "-e", "4"}, "4K"},
               {{"-f", "1"}, "-f"},
               {{"-n", "-3"}, "-3"},
               {{"--dtypes", "float31"}, "float31"},
               {{"--collectives", "all_to_some"}, "all_to_some"},
               {{"--algorithm", "spiral"}, "spiral"},
               {{"--cap", "0"}, "--cap"},
               {{"--samples", "0"}, "--samples"},
               {{"--versus", "--ranks", "2,0"}, "--ranks"},
               {{"--versus", "--rounds", "0"}, "--rounds"},
               {{"4M"}, "4M"}};
  for (const auto& c : cases) {
    std::vector<std::string> words = {"-n", "2"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    const auto result = run(words);
    EXPECT_EQ(result.code, 2) << c.fact;
    EXPECT_THAT(result.out, IsEmpty()) << c.fact;
    EXPECT_THAT(result.error, AllOf(HasSubstr("motley-perf: "), HasSubstr(c.fact)));
  }
  EXPECT_EQ(run({"--no_such_flag"}).code, 1);
}

TEST(MotleyPerf, SaysThatThereIsNoDevice) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  const auto result = run({"-n", "2", "--memory", "device"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, AllOf(HasSubstr("--memory"), HasSubstr("no device")));
  const auto both = run({"--memory", "device", "--buffers", "allocated"});
  EXPECT_EQ(both.code, 2);
  EXPECT_THAT(both.error, HasSubstr("allocated"));
}

TEST(MotleyPerf, SaysWhyAFileCannotBeWritten) {
  const auto result = run({"--json", "/nonexistent/x"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.error, HasSubstr("/nonexistent/x"));
}

TEST(MotleyPerf, ExplainsFlagsAndColumns) {
  EXPECT_THAT(run({"--help"}).out,
              AllOf(HasSubstr("--collectives"), HasSubstr("busbw"), HasSubstr("2(p-1)/p")));
  EXPECT_THAT(run({"--version"}).out, HasSubstr("UCX"));
}

}  // namespace
}  // namespace motley
