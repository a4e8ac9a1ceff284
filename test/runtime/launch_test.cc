// The parts of motley-run that need no processes: its command line, lines and their prefixes, when
// ranks are signalled, which code comes out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "comm/controller.h"
#include "comm/error.h"
#include "runtime/launch/arguments.h"
#include "runtime/launch/environment.h"
#include "runtime/launch/job_policy.h"
#include "runtime/launch/line_buffer.h"
#include "runtime/launch/process.h"

namespace motley::runtime {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

// What parse_arguments says against `words`; empty if nothing.
std::string complaint(const std::vector<std::string>& words) {
  try {
    parse_arguments(words);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    return error.what();
  }
  return "";
}

TEST(Arguments, AreReadUpToTheProgram) {
  const Arguments arguments = parse_arguments({"-n",
                                               "4",
                                               "--slow=3:4,1:1.5",
                                               "--slow",
                                               "2:8",
                                               "--transport",
                                               "shm",
                                               "--iface",
                                               "eth1",
                                               "--timeout=2.5",
                                               "--elastic",
                                               "--standby",
                                               "--grace",
                                               "0",
                                               "--controller-program",
                                               "c",
                                               "--",
                                               "train",
                                               "-n",
                                               "--",
                                               "7"});
  EXPECT_EQ(arguments.action, Action::kLaunch);
  EXPECT_EQ(arguments.launch.size, 4);
  EXPECT_THAT(arguments.launch.slow, ElementsAre(Pair(1, 1.5), Pair(2, 8), Pair(3, 4)));
  EXPECT_EQ(arguments.launch.transport, "shm");
  EXPECT_EQ(arguments.launch.interface, "eth1");
  EXPECT_EQ(arguments.launch.timeout, seconds(2.5));
  EXPECT_EQ(arguments.launch.when_lost, WhenLost::kGoOn);
  EXPECT_TRUE(arguments.launch.standby);
  EXPECT_EQ(arguments.launch.grace, Duration::zero());
  EXPECT_EQ(arguments.launch.controller_program, "c");
  EXPECT_THAT(arguments.launch.command, ElementsAre("train", "-n", "--", "7"));
}

TEST(Arguments, NeedNoDashesBeforeTheProgram) {
  EXPECT_THAT(parse_arguments({"-n", "2", "train", "--elastic"}).launch.command,
              ElementsAre("train", "--elastic"));
}

TEST(Arguments, AskForHelpOrVersion) {
  EXPECT_EQ(parse_arguments({"--help"}).action, Action::kHelp);
  EXPECT_EQ(parse_arguments({"-n", "2", "-h"}).action, Action::kHelp);
  EXPECT_EQ(parse_arguments({"--version"}).action, Action::kVersion);
  EXPECT_EQ(parse_arguments({"-n", "2", "--", "train", "--help"}).action, Action::kLaunch);
}

TEST(Arguments, AreRefusedByName) {
  EXPECT_THAT(complaint({}), HasSubstr("-n"));
  EXPECT_THAT(complaint({"-n"}), AllOf(HasSubstr("-n"), HasSubstr("value")));
  EXPECT_THAT(complaint({"-n", "0"}), HasSubstr("\"0\""));
  EXPECT_THAT(complaint({"-n", "4x"}), HasSubstr("\"4x\""));
  EXPECT_THAT(complaint({"-n", "4", "--slow", "3"}), HasSubstr("\"3\""));
  EXPECT_THAT(complaint({"-n", "4", "--slow", "3:4,"}), HasSubstr("\"\""));
  EXPECT_THAT(complaint({"-n", "4", "--timeout", "nan"}), HasSubstr("\"nan\""));
  EXPECT_THAT(complaint({"-n", "4", "--timeout", "0"}), HasSubstr("\"0\""));
  EXPECT_THAT(complaint({"-n", "4", "--grace", "-1"}), HasSubstr("\"-1\""));
  EXPECT_THAT(complaint({"-n", "4", "--transport", "tcp"}),
              AllOf(HasSubstr("\"tcp\""), HasSubstr("shm")));
  EXPECT_THAT(complaint({"-n", "4", "--elastic=no"}), HasSubstr("--elastic=no"));
  EXPECT_THAT(complaint({"-n", "4", "--standby=2"}), HasSubstr("--standby=2"));
  EXPECT_THAT(complaint({"-n", "4", "--fast"}), HasSubstr("--fast"));
}

TEST(Arguments, AreExplainedOnOneScreen) {
  const std::string help = help_text();
  EXPECT_LE(std::count(help.begin(), help.end(), '\n'), 25);
  for (const char* option : {"-n", "--slow", "--transport", "--timeout", "--elastic", "--standby",
                             "--grace", "--controller_program", "--version"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
}

TEST(LineBuffer, PutsThePrefixBeforeEachLineHoweverItArrives) {
  LastLines last;
  LineBuffer lines("[3] ", last);
  std::string out;
  for (const char* piece : {"a", "b\nc", "\n", "", "\n", "d"}) lines.add(piece, out);
  EXPECT_EQ(out, "[3] ab\n[3] c\n[3] \n");
  lines.finish(out);
  lines.finish(out);
  EXPECT_EQ(out, "[3] ab\n[3] c\n[3] \n[3] d\n");
  EXPECT_THAT(last.lines(), ElementsAre("ab", "c", "", "d"));
}

TEST(LineBuffer, KeepsAllOfALineThatIsTooLong) {
  // One byte less than a piece, a piece, one more, and more than two.
  for (const std::size_t size : {LineBuffer::kLongestLine - 1, LineBuffer::kLongestLine,
                                 LineBuffer::kLongestLine + 1, 2 * LineBuffer::kLongestLine + 7}) {
    LastLines last;
    LineBuffer lines("", last);
    std::string out;
    lines.add(std::string(size, 'x') + "\nend\n", out);
    EXPECT_EQ(std::count(out.begin(), out.end(), 'x'), static_cast<std::ptrdiff_t>(size));
    EXPECT_TRUE(out.ends_with("x\nend\n"));
    EXPECT_EQ(std::count(out.begin(), out.end(), '\n'),
              static_cast<std::ptrdiff_t>(
                  (size + LineBuffer::kLongestLine - 1) / LineBuffer::kLongestLine + 1));
  }
}

TEST(LineBuffer, RemembersTheLastLinesOnly) {
  LastLines last;
  LineBuffer lines("[0] ", last);
  std::string out;
  for (int i = 0; i < 100; ++i) lines.add("line " + std::to_string(i) + "\n", out);
  lines.add(std::string(5000, 'y') + "\n", out);
  ASSERT_EQ(last.lines().size(), LastLines::kLines);
  EXPECT_EQ(last.lines().front(), "line 93");
  EXPECT_EQ(last.lines().back().size(), LastLines::kLineBytes);
}

constexpr ExitStatus kGood{};
constexpr ExitStatus kFailed{.code = 3};
constexpr ExitStatus kKilled{.signal = SIGKILL};
constexpr TimePoint kStart{seconds(100)};
constexpr Duration kGrace = seconds(5);

TEST(JobPolicy, EndsWithZeroIfAllDo) {
  JobPolicy policy(2, WhenLost::kEndOthers, kGrace);
  EXPECT_FALSE(policy.ended(kGood, kStart));
  EXPECT_FALSE(policy.next_timer());
  EXPECT_FALSE(policy.ended(kGood, kStart));
  EXPECT_EQ(policy.running(), 0);
  EXPECT_EQ(policy.exit_code(), 0);
}

TEST(JobPolicy, EndsTheOthersAfterAGraceAndThenKillsThem) {
  JobPolicy policy(3, WhenLost::kEndOthers, kGrace);
  EXPECT_TRUE(policy.ended(kKilled, kStart));
  EXPECT_EQ(policy.next_timer(), kStart + kGrace);
  EXPECT_EQ(policy.take_due(kStart + kGrace - Duration(1)), 0);
  EXPECT_EQ(policy.take_due(kStart + kGrace), SIGTERM);
  EXPECT_EQ(policy.take_due(kStart + kGrace), 0);
  EXPECT_FALSE(policy.ended({.signal = SIGTERM}, kStart + kGrace));  // as was to be expected
  EXPECT_EQ(policy.take_due(kStart + 2 * kGrace), SIGKILL);
  EXPECT_FALSE(policy.ended(kKilled, kStart + 2 * kGrace));
  EXPECT_FALSE(policy.next_timer());
  EXPECT_EQ(policy.exit_code(), 128 + SIGKILL);
}

TEST(JobPolicy, GivesTheCodeOfTheFirstThatFailed) {
  JobPolicy policy(3, WhenLost::kEndOthers, kGrace);
  policy.ended(kGood, kStart);
  policy.ended(kFailed, kStart);
  policy.ended(kKilled, kStart);
  EXPECT_EQ(policy.exit_code(), 3);
}

TEST(JobPolicy, LetsTheOthersGoOnWhereAsked) {
  JobPolicy policy(3, WhenLost::kGoOn, kGrace);
  EXPECT_TRUE(policy.ended(kFailed, kStart));
  EXPECT_TRUE(policy.ended(kKilled, kStart));
  EXPECT_FALSE(policy.next_timer());
  EXPECT_FALSE(policy.ending());
  EXPECT_EQ(policy.exit_code(), 3);
  policy.ended(kGood, kStart);
  EXPECT_EQ(policy.exit_code(), 0);
}

TEST(JobPolicy, KillsAtTheSecondInterruptOnly) {
  JobPolicy policy(1, WhenLost::kEndOthers, kGrace);
  EXPECT_EQ(policy.got_signal(SIGUSR1), SIGUSR1);
  EXPECT_FALSE(policy.ending());
  EXPECT_EQ(policy.got_signal(SIGINT), SIGINT);
  EXPECT_TRUE(policy.ending());
  EXPECT_EQ(policy.got_signal(SIGTERM), SIGTERM);
  EXPECT_EQ(policy.got_signal(SIGUSR1), SIGUSR1);
  EXPECT_EQ(policy.got_signal(SIGINT), SIGKILL);
  EXPECT_FALSE(policy.ended(kKilled, kStart));
  EXPECT_EQ(policy.exit_code(), 128 + SIGINT);
}

TEST(JobPolicy, EndsAnElasticJobToo) {
  JobPolicy policy(3, WhenLost::kGoOn, kGrace);
  policy.ended(kGood, kStart);
  policy.got_signal(SIGTERM);
  EXPECT_FALSE(policy.ended({.signal = SIGTERM}, kStart));
  EXPECT_EQ(policy.take_due(kStart + kGrace), SIGTERM);
  policy.ended(kGood, kStart + kGrace);
  EXPECT_EQ(policy.exit_code(), 128 + SIGTERM);
}

TEST(JobPolicy, EndsTheRanksIfNobodyReadsThem) {
  JobPolicy policy(1, WhenLost::kGoOn, kGrace);
  policy.lost_reader(kStart);
  EXPECT_EQ(policy.take_due(kStart), SIGTERM);
  EXPECT_EQ(policy.take_due(kStart + kGrace), SIGKILL);
  policy.ended(kKilled, kStart + kGrace);
  EXPECT_EQ(policy.exit_code(), 128 + SIGPIPE);
}

TEST(ExitStatus, NamesSignals) {
  EXPECT_THAT(describe(kKilled), HasSubstr("SIGKILL"));
  EXPECT_THAT(describe({.signal = 40}), HasSubstr("40"));
  EXPECT_THAT(describe(kFailed), HasSubstr("3"));
}

TEST(RankEnvironment, ReplacesThePlaceOfAnOuterJob) {
  const std::vector<std::string> outer = {"HOME=/root", "MOTLEY_RANK=7", "MOTLEY_SLOW=9",
                                          "MOTLEY_TIMEOUT=1", "MOTLEY_LEASE=3"};
  LaunchOptions options{.size = 2, .slow = {{1, 4}}, .transport = "shm"};
  auto inner =
      rank_environment(outer, {.rank = 1, .controller = "tcp://h:1", .token = "t"}, options);
  std::sort(inner.begin(), inner.end());
  EXPECT_THAT(inner, ElementsAre("HOME=/root", "MOTLEY_CONTROLLER=tcp://h:1", "MOTLEY_LEASE=3",
                                 "MOTLEY_RANK=1", "MOTLEY_SIZE=2", "MOTLEY_SLOW=4",
                                 "MOTLEY_TIMEOUT=1", "MOTLEY_TOKEN=t", "MOTLEY_TRANSPORT=shm"));
  options.interface = "10.1.0.0/16";
  options.timeout = seconds(2.5);
  inner = rank_environment(outer, {.rank = 0}, options);
  EXPECT_THAT(inner, AllOf(Contains("MOTLEY_TIMEOUT=2.5"), Contains("MOTLEY_IFACE=10.1.0.0/16"),
                           Not(Contains("MOTLEY_SLOW=9"))));
  EXPECT_EQ(value_of(inner, "MOTLEY_RANK"), "0");
  EXPECT_EQ(value_of(inner, "MOTLEY_RAN"), "");
}

TEST(Token, IsLongAndNeverTheSame) {
  EXPECT_EQ(make_token().size(), 32u);
  EXPECT_NE(make_token(), make_token());
}

TEST(FindProgram, LooksInThePathUnlessThereIsASlash) {
  EXPECT_THAT(find_program("sh", "/nowhere:/bin"), "/bin/sh");
  EXPECT_EQ(find_program("sh", ""), "");
  EXPECT_EQ(find_program("", "/bin"), "");
  EXPECT_EQ(find_program("/bin/sh", ""), "/bin/sh");
  EXPECT_EQ(find_program("/etc/passwd", ""), "");  // not executable
  EXPECT_EQ(find_program("/bin", ""), "");         // a folder
}

}  // namespace
}  // namespace motley::runtime
