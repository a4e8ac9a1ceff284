// motley-run as built, with shells as ranks: output by rank, exit codes, deaths, signals, and that
// nothing is left running. Then a worker killed in all-reduce and in partial-reduce.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "test/support/program_run.h"
#include "test/support/temporary_folder.h"

namespace motley {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<std::string> command(std::vector<std::string> words) {
  words.insert(words.begin(), MOTLEY_RUN);
  return words;
}

ProgramRun::Result run(std::vector<std::string> words, const std::string& input = "") {
  return ProgramRun(command(std::move(words)), input).wait();
}

// The same with `options` and a shell script as the program.
std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.end(), {"--", "/bin/sh", "-c", script});
  return options;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

// Whether `pid` runs. A zombie does not; who has to reap it is not ours once its parent has ended.
bool runs(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // "42 (name) S …"; the name may hold anything
  return name_end != text.npos && text.size() > name_end + 2 && text[name_end + 2] != 'Z' &&
         text[name_end + 2] != 'X';
}

// Killing is not instant, so that it is awaited, up to 10 s.
bool is_gone(pid_t pid) {
  Clock& clock = Clock::real();
  for (const TimePoint until = clock.now() + seconds(10); clock.now() < until;) {
    if (!runs(pid)) return true;
    clock.sleep_until(clock.now() + seconds(0.001));
  }
  return false;
}

// The children of `pid`, zombies among them.
std::vector<pid_t> children_of(pid_t pid) {
  const std::string name = std::to_string(pid);
  std::ifstream file("/proc/" + name + "/task/" + name + "/children");
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

TEST(MotleyRun, GivesEachRankItsPlace) {
  const auto result = run(shell({"-n", "3", "--slow", "1:4", "--transport", "shm", "--timeout=9"},
                                "echo $MOTLEY_RANK of $MOTLEY_SIZE, slow ${MOTLEY_SLOW:-no}, "
                                "$MOTLEY_TRANSPORT, $MOTLEY_TIMEOUT s, ${#MOTLEY_TOKEN} digits, "
                                "${MOTLEY_CONTROLLER%:*}"));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.error, "");
  EXPECT_THAT(sorted_lines(result.out),
              testing::ElementsAre("[0] 0 of 3, slow no, shm, 9 s, 32 digits, tcp://127.0.0.1",
                                   "[1] 1 of 3, slow 4, shm, 9 s, 32 digits, tcp://127.0.0.1",
                                   "[2] 2 of 3, slow no, shm, 9 s, 32 digits, tcp://127.0.0.1"));
}

TEST(MotleyRun, KeepsOutputAndErrorsApartAndEndsTheLastLine) {
  const auto result = run(shell({"-n", "2"}, "echo out; echo err >&2; printf 'no end'"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(sorted_lines(result.out),
              testing::ElementsAre("[0] no end", "[0] out", "[1] no end", "[1] out"));
  EXPECT_THAT(sorted_lines(result.error), testing::ElementsAre("[0] err", "[1] err"));
}

TEST(MotleyRun, LeavesTheRankOutIfPlain) {
  const auto result = run(shell({"-n", "2", "--plain"}, "echo out; printf 'no end'"));
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(sorted_lines(result.out), testing::ElementsAre("no end", "no end", "out", "out"));
}

TEST(MotleyRun, NeverMixesLines) {
  // 4 ranks write 500 lines of about 5 kB, more than a pipe takes at once, on both streams, which
  // lead to the same place.
  const std::string script =
      "l=$(printf '%05000d' 0); i=0; while [ $i -lt 250 ]; do echo a$l; echo b$l >&2; "
      "i=$((i+1)); done";
  ProgramRun both(
      {"/bin/sh", "-c", "exec \"$1\" -n 4 -- /bin/sh -c \"$2\" 2>&1", "sh", MOTLEY_RUN, script});
  const auto result = both.wait();
  EXPECT_EQ(result.code, 0);
  const auto lines = sorted_lines(result.out);
  EXPECT_EQ(lines.size(), 2000u);
  for (const std::string& line : lines) {
    ASSERT_EQ(line.size(), 4u + 5001u);
    ASSERT_EQ(line.find_first_not_of('0', 5), line.npos);
  }
}

TEST(MotleyRun, LetsRankZeroReadItsInput) {
  const auto result = run({"-n", "2", "--", "/bin/cat"}, "hello\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "[0] hello\n");
}

TEST(MotleyRun, LeavesNoDescriptorsToRanks) {
  // Shells and test drivers may leave some open, which are not ours to close.
  const auto without = ProgramRun({"/bin/ls", "/proc/self/fd"}).wait();
  const auto with = run({"-n", "8", "--", "/bin/ls", "/proc/self/fd"});
  EXPECT_EQ(with.code, 0);
  EXPECT_EQ(sorted_lines(with.out).size(), 8 * sorted_lines(without.out).size()) << with.out;
}

TEST(MotleyRun, SaysWhatIsWrongBeforeItStartsAnything) {
  const auto missing = run({"-n", "2", "--", "no-such-program"});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, HasSubstr("no-such-program"));
  const auto rank = run(shell({"-n", "2", "--slow", "2:4"}, "echo started"));
  EXPECT_EQ(rank.code, 2);
  EXPECT_EQ(rank.out, "");
  EXPECT_THAT(rank.error, AllOf(HasSubstr("rank 2"), HasSubstr("2 ranks")));
  const auto controller =
      run(shell({"-n", "2", "--controller_program", "nothing"}, "echo started"));
  EXPECT_EQ(controller.code, 2);
  EXPECT_EQ(controller.out, "");
  EXPECT_THAT(controller.error, HasSubstr("nothing"));
  const auto mute = run(shell({"-n", "2", "--controller_program", "/bin/true"}, "echo started"));
  EXPECT_EQ(mute.code, 1);
  EXPECT_EQ(mute.out, "");
  EXPECT_THAT(mute.error, HasSubstr("/bin/true"));
}

TEST(MotleyRun, ExplainsItself) {
  EXPECT_THAT(run({"--help"}).out, HasSubstr("--elastic"));
  EXPECT_THAT(run({"--version"}).out, AllOf(HasSubstr("motley-run"), HasSubstr("UCX")));
}

TEST(MotleyRun, ReportsTheRankThatWasKilledAndEndsTheOthers) {
  const TimePoint start = Clock::real().now();
  const auto result = run(shell({"-n", "3", "--grace", "0.2"},
                                "if [ $MOTLEY_RANK = 1 ]; then echo the last words; kill -9 $$; fi;"
                                "trap '' TERM; sleep 100"));
  EXPECT_LT(to_seconds(Clock::real().now() - start), 30);  // the sleep is 100 s
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(result.error, AllOf(HasSubstr("rank 1 of 3"), HasSubstr("SIGKILL"),
                                  HasSubstr("[1] the last words"), HasSubstr("SIGTERM")));
}

TEST(MotleyRun, LeavesTheOthersTheirGrace) {
  const auto result = run(
      shell({"-n", "2"}, "if [ $MOTLEY_RANK = 1 ]; then exit 3; fi; sleep 0.2; echo still here"));
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "[0] still here\n");
  EXPECT_THAT(result.error, AllOf(HasSubstr("rank 1 of 2"), HasSubstr("code 3")));
}

TEST(MotleyRun, LetsTheOthersGoOnIfElastic) {
  const auto some =
      run(shell({"-n", "3", "--elastic", "--grace", "0"},
                "if [ $MOTLEY_RANK = 1 ]; then kill -9 $$; fi; sleep 0.2; echo done"));
  EXPECT_EQ(some.code, 0);
  EXPECT_THAT(sorted_lines(some.out), testing::ElementsAre("[0] done", "[2] done"));
  EXPECT_THAT(some.error, AllOf(HasSubstr("rank 1 of 3"), HasSubstr("SIGKILL")));
  EXPECT_EQ(run(shell({"-n", "3", "--elastic"}, "exit 7")).code, 7);
}

TEST(MotleyRun, StartsManyRanks) {
  const auto result = run(shell({"-n", "64"}, "echo here"));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(sorted_lines(result.out).size(), 64u);
  EXPECT_EQ(sorted_lines(result.out).back(), "[9] here");
}

TEST(MotleyRun, NeedsNoMoreOpenFilesThanItMayHave) {
  const auto limited = [](const std::string& limit) {
    const std::string script = limit + " && exec \"$0\" -n 64 -- /bin/sh -c 'ulimit -n'";
    return ProgramRun({"/bin/sh", "-c", script, MOTLEY_RUN}).wait();
  };
  const auto soft = limited("ulimit -S -n 80");  // is raised for motley-run, and not for the ranks
  EXPECT_EQ(soft.code, 0) << soft.error;
  EXPECT_THAT(soft.out, HasSubstr("[63] 80\n"));
  const auto hard = limited("ulimit -n 80");
  EXPECT_EQ(hard.code, 2);
  EXPECT_EQ(hard.out, "");
  EXPECT_THAT(hard.error, AllOf(HasSubstr("80"), HasSubstr("ulimit")));
}

// Ranks that say which signal they got, and go on until they have got TERM.
constexpr const char* kTraps =
    "trap 'echo usr1' USR1; trap 'echo int' INT; trap 'echo hup' HUP; trap 'echo term; exit 5' "
    "TERM;"
    "echo ready; while :; do sleep 0.01; done";

TEST(MotleyRun, PassesSignalsOn) {
  ProgramRun job(command(shell({"-n", "2"}, kTraps)));
  for (const char* rank : {"[0] ready", "[1] ready"}) job.await(rank);
  job.signal(SIGUSR1);
  for (const char* rank : {"[0] usr1", "[1] usr1"}) job.await(rank);
  job.signal(SIGHUP);
  for (const char* rank : {"[0] hup", "[1] hup"}) job.await(rank);
  job.signal(SIGTERM);
  const auto result = job.wait();
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[0] term"), HasSubstr("[1] term"), Not(HasSubstr("int"))));
}

TEST(MotleyRun, KillsTheRanksAtTheSecondInterrupt) {
  ProgramRun job(command(shell({"-n", "2"}, kTraps)));
  for (const char* rank : {"[0] ready", "[1] ready"}) job.await(rank);
  job.signal(SIGINT);
  for (const char* rank : {"[0] int", "[1] int"}) job.await(rank);
  job.signal(SIGINT);
  EXPECT_EQ(job.wait().code, 128 + SIGINT);
}

TEST(MotleyRun, LeavesNothingRunning) {
  // What a rank has started ends with it, and its pipe held open keeps nobody.
  const auto result = run(shell({"-n", "2"}, "sleep 100 & echo pid $!"));
  EXPECT_EQ(result.code, 0);
  for (const std::string& line : sorted_lines(result.out)) {
    EXPECT_TRUE(is_gone(std::stoi(line.substr(std::string("[0] pid ").size())))) << line;
  }
}

TEST(MotleyRun, LeavesNoZombies) {
  ProgramRun job(command(shell({"-n", "3", "--elastic"},
                               "test $MOTLEY_RANK = 1 && kill -9 $$; echo ready; exec sleep 100")));
  for (const char* text : {"[0] ready", "[2] ready", "rank 1 of 3"}) job.await(text);
  EXPECT_EQ(children_of(job.pid()).size(), 4u);  // two ranks, the controller, the guard
  job.signal(SIGTERM);
  EXPECT_EQ(job.wait().code, 128 + SIGKILL);  // the first that failed
}

TEST(MotleyRun, TakesTheJobWithItWhenItIsKilled) {
  // A rank may be a script that has started the work.
  ProgramRun job(command(shell({"-n", "2"}, "sleep 100 & echo script $$; echo work $!; wait")));
  std::vector<pid_t> all;
  for (const char* text : {"[0] script ", "[0] work ", "[1] script ", "[1] work "}) {
    all.push_back(std::stoi(job.await(text)));
  }
  for (const pid_t child : children_of(job.pid())) all.push_back(child);
  EXPECT_THAT(all, testing::SizeIs(8));  // two ranks twice, their work, controller and guard
  job.signal(SIGKILL);
  EXPECT_EQ(job.wait().signal, SIGKILL);
  for (const pid_t pid : all) EXPECT_TRUE(is_gone(pid)) << pid;
}

TEST(MotleyRun, EndsTheRanksWhenNobodyReadsThem) {
  ProgramRun job({"/bin/sh", "-c", "\"$1\" -n 2 -- /bin/sh -c 'while :; do echo x; done' | head -1",
                  "sh", MOTLEY_RUN});
  EXPECT_EQ(job.wait().out.substr(3), " x\n");
}

TEST(MotleyRun, TellsWhoDiedInWhichCallOfAllReduce) {
  ProgramRun job(command({"-n", "4", "--", ALL_REDUCE_LOOP, "all_reduce", "60"}));
  const pid_t victim = std::stoi(job.await("[2] process "));
  for (const char* rank : {"[0] process ", "[1] process ", "[3] process "}) job.await(rank);
  const TimePoint killed = Clock::real().now();
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  for (const char* rank : {"[0] peer lost: ", "[1] peer lost: ", "[3] peer lost: "}) {
    EXPECT_THAT(job.await(rank), AllOf(HasSubstr("all_reduce #"), HasSubstr("rank 2")));
  }
  EXPECT_LT(to_seconds(Clock::real().now() - killed), 2);
  const auto result = job.wait();
  EXPECT_EQ(result.code, 128 + SIGKILL);
  EXPECT_THAT(result.error, AllOf(HasSubstr("rank 2 of 4"), HasSubstr("SIGKILL")));
}

// The line that follows `text`.
std::string after(const std::string& output, const std::string& text) {
  const std::size_t at = output.find(text);
  return at == output.npos ? "" : output.substr(at, output.find('\n', at) - at);
}

TEST(MotleyRun, GoesOnFromTheLastCheckpointOfTheJobThatDied) {
  const auto train = [](const std::string& workers, const std::string& folder,
                        const std::string& steps, const std::vector<std::string>& death) {
    std::vector<std::string> words = {"-n", workers, "--", RESUMED_TRAINING, folder, steps};
    words.insert(words.end(), death.begin(), death.end());
    return run(words);
  };
  for (const char* workers : {"4", "2"}) {
    const test::TemporaryFolder folder;
    const auto died = train("4", folder / "run", "0", {"2"});
    EXPECT_EQ(died.code, 128 + SIGKILL) << died.error;
    const auto rest = train(workers, folder / "run", "20", {});
    EXPECT_EQ(rest.code, 0) << rest.error;
    EXPECT_THAT(rest.out, AllOf(HasSubstr(folder / "run/"), HasSubstr("saved by 4 workers")));
    const std::string steps = after(rest.out, "steps "), loss = after(rest.out, "last loss ");
    EXPECT_NE(loss, "");
    const auto whole = train("1", folder / "whole", steps.substr(std::string("steps ").size()), {});
    EXPECT_THAT(whole.out, HasSubstr("from the beginning"));
    EXPECT_EQ(after(whole.out, "last loss "), loss);
  }
}

// The controllers among the children of `job`, in the order in which they were started.
std::vector<pid_t> controllers_of(pid_t job) {
  std::vector<pid_t> controllers;
  for (const pid_t child : children_of(job)) {
    std::ifstream file("/proc/" + std::to_string(child) + "/cmdline");
    std::string text;
    std::getline(file, text);
    if (text.find("motley-controller") != text.npos) controllers.push_back(child);
  }
  return controllers;
}

// Each of the two in turn. Ranks that averaged go on with whichever is left, and make no more steps
// alone than they may without one: those take no time at all.
TEST(MotleyRun, GoesOnWithTheStandbyWhenAControllerIsKilled) {
  for (const std::size_t killed : {0u, 1u}) {
    ProgramRun job(command({"-n", "3", "--standby", "--", ALL_REDUCE_LOOP, "partial_reduce", "1"}));
    for (const char* rank : {"[0] process ", "[1] process ", "[2] process "}) job.await(rank);
    const std::vector<pid_t> controllers = controllers_of(job.pid());
    ASSERT_THAT(controllers, testing::SizeIs(2));
    ASSERT_EQ(kill(controllers[killed], SIGKILL), 0);
    const auto result = job.wait();
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_THAT(result.error,
                AllOf(HasSubstr("SIGKILL"), HasSubstr("The job goes on with that at")));
    for (const char* rank : {"[0] finished", "[1] finished", "[2] finished"}) {
      EXPECT_THAT(result.out, HasSubstr(rank)) << result.error;
    }
  }
}

TEST(MotleyRun, LetsPartialReduceGoOnWithoutTheDead) {
  ProgramRun job(command({"-n", "4", "--elastic", "--", ALL_REDUCE_LOOP, "partial_reduce", "1"}));
  const pid_t victim = std::stoi(job.await("[2] process "));
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  const auto result = job.wait();
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.error, AllOf(HasSubstr("rank 2 of 4"), HasSubstr("SIGKILL")));
  for (const char* rank : {"[0] finished", "[1] finished", "[3] finished"}) {
    EXPECT_THAT(result.out, HasSubstr(rank)) << result.error;
  }
  EXPECT_THAT(result.out, Not(HasSubstr("[2] finished")));
}

}  // namespace
}  // namespace motley
