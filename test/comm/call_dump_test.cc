// Scenario 9: ranks went apart hours ago. The last calls of every rank come over the control plane
// into one file of JSON lines, in bounded time, and it names the ranks that did not answer.
#include "comm/control/call_dump.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "comm/communicator.h"
#include "comm/control/controller_core.h"
#include "comm/control/dump_maker.h"
#include "comm/control/progress.h"
#include "comm/error.h"
#include "comm/local.h"
#include "test/support/late_rank.h"
#include "test/support/temporary_folder.h"

namespace motley {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const TimePoint kNow(seconds(1000));

std::vector<std::string> files_in(const test::TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    names.push_back(file.path().filename());
  return names;
}

std::vector<json> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

CallRecord call(std::uint32_t number, CallRecord::State state = CallRecord::kDone) {
  return {.number = number,
          .kind = CallKind::kAllReduce,
          .state = state,
          .count = 1024,
          .algorithm = "ring",
          .bytes = 77,
          .started = kNow - seconds(3),
          .last_arrival = kNow - seconds(2),
          .ended = state == CallRecord::kRunning ? TimePoint{} : kNow - seconds(1)};
}

// Four ranks; rank 3 does not come to the third call. The others time out; the file has what each
// of the four did, and every error names it.
TEST(CallDump, Scenario9IsWrittenWhenACallTimesOut) {
  const test::TemporaryFolder folder;
  Options options;
  options.timeout = seconds(1);
  options.dump = folder.path();
  test::run_with_a_late_rank(3, options, [&](Communicator&, const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder.path() + "/all_reduce-2.jsonl"));
  });
  EXPECT_THAT(files_in(folder), ElementsAre("all_reduce-2.jsonl"));
  const std::vector<json> lines = lines_of(folder.path() + "/all_reduce-2.jsonl");
  ASSERT_THAT(lines, SizeIs(1 + 3 * 3 + 2 + 1));
  EXPECT_EQ(lines.front()["dump"], "all_reduce-2");
  EXPECT_EQ(lines.front()["ranks"], 4);
  EXPECT_EQ(lines.back()["end"], true);
  EXPECT_TRUE(lines.back()["missing"].empty());
  std::vector<std::vector<std::string>> calls(4);
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const json& line = lines[i];
    calls.at(line["rank"]).push_back(std::string(line["call"]) + " " + std::string(line["state"]));
    EXPECT_EQ(line["algorithm"], line["call"] == "all_reduce" ? "ring" : "dissemination");
  }
  EXPECT_THAT(calls[3], ElementsAre("all_reduce done", "barrier done"));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(calls[static_cast<std::size_t>(rank)],
                ElementsAre("all_reduce done", "barrier done",
                            testing::AnyOf("all_reduce running", "all_reduce failed")));
  }
}

// The call fails as it would without a dump, and says why there is none.
TEST(CallDump, ThatCannotBeWrittenIsNoOtherError) {
  Options options;
  options.timeout = seconds(0.6);
  options.dump = "/proc/no such folder";
  run_local(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 1) return;
        try {
          comm.barrier().wait();
          ADD_FAILURE();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kTimeout);
          EXPECT_THAT(error.what(), HasSubstr("are not told: write"));
          EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
        }
      },
      options);
}

ClientConfig config_of(int rank) { return {.rank = rank, .size = 5, .token = "token"}; }

// A controller and its ranks without I/O. A rank answers at once unless it is stopped.
class DumpWorld : public testing::Test {
 protected:
  DumpWorld() {
    for (int rank = 0; rank < 5; ++rank) {
      cores.push_back(std::make_unique<ClientCore>(config_of(rank), now));
      makers.push_back(std::make_unique<DumpMaker>(*cores.back(), config_of(rank)));
    }
  }
  // Lets all messages arrive, but for those of ranks `absent` and `stopped`.
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < 5; ++rank) {
        if (rank == absent) continue;
        ClientCore& core = *cores[static_cast<std::size_t>(rank)];
        core.on_time(now);
        for (const Message& message : core.take_output()) {
          if (rank == stopped && message.type == MessageType::kCalls) continue;
          controller.on_message(std::to_string(rank), message, now);
          moved = true;
        }
      }
      for (const auto& output : controller.take_output()) {
        const auto rank = static_cast<std::size_t>(std::stoi(output.to));
        cores[rank]->on_message(output.message, now);
        for (const Message& told : cores[rank]->take_told()) {
          if (told.type == MessageType::kTell) {
            ++asked;
            makers[rank]->answer(told, {call(static_cast<std::uint32_t>(rank))}, now);
          } else {
            makers[rank]->take(told, now);
          }
        }
        moved = true;
      }
    }
  }
  std::string begin(int rank) {
    return makers[static_cast<std::size_t>(rank)]->begin(
        {.folder = folder.path(),
         .name = "barrier-1",
         .why = "a \"test\"",
         .rank = rank,
         .size = 5},
        {call(static_cast<std::uint32_t>(rank))}, now,
        [&](LogLevel, const std::string& text) { logged.push_back(text); });
  }

  test::TemporaryFolder folder;
  TimePoint now = kNow;
  ControllerCore controller{{.size = 5, .token = "token", .lease = seconds(100)}, now};
  std::vector<std::unique_ptr<ClientCore>> cores;
  std::vector<std::unique_ptr<DumpMaker>> makers;
  std::vector<std::string> logged;
  int absent = -1;
  int stopped = -1;
  int asked = 0;
};

TEST_F(DumpWorld, Scenario9NamesTheRanksThatGaveNothing) {
  absent = 4;
  stopped = 2;
  settle();
  controller.report_lost(3, "it was killed");
  settle();
  const std::string path = begin(1);
  settle();
  EXPECT_TRUE(makers[1]->busy());
  EXPECT_EQ(asked, 2);  // ranks 0 and 2
  while (makers[1]->busy() && now < kNow + seconds(10)) {
    now = makers[1]->next_timer();
    makers[1]->on_time(now);
    settle();
  }
  EXPECT_LE(now, kNow + CallDump::kPatience);
  EXPECT_GT(asked, 4);  // rank 2, again and again
  const std::vector<json> lines = lines_of(path);
  ASSERT_THAT(lines, SizeIs(7));
  EXPECT_EQ(lines[0]["why"], "a \"test\"");
  EXPECT_EQ(lines[1]["rank"], 1);
  EXPECT_EQ(lines[1]["ended_s"], 1.0);
  EXPECT_TRUE(lines[1]["first_message_s"].is_null());
  EXPECT_THAT(lines.back()["missing"].get<std::vector<int>>(), ElementsAre(2, 3, 4));
  const auto why = [&](int rank) {
    for (const json& line : lines) {
      if (line.contains("rank") && line["rank"] == rank) return std::string(line["missing"]);
    }
    return std::string();
  };
  EXPECT_THAT(why(2), HasSubstr("did not answer within 2.0 s"));
  EXPECT_THAT(why(3), HasSubstr("it is dead: it was killed"));
  EXPECT_THAT(why(4), HasSubstr("has not joined"));
  EXPECT_THAT(logged, ElementsAre(HasSubstr(path)));
}

// All ranks fail at the same call: the first makes the dump for all of them.
TEST_F(DumpWorld, IsMadeOnceForAll) {
  settle();
  for (int rank = 0; rank < 5; ++rank) begin(rank);
  settle();
  for (const auto& maker : makers) EXPECT_FALSE(maker->busy());
  EXPECT_THAT(logged, SizeIs(1));
  EXPECT_THAT(files_in(folder), ElementsAre("barrier-1.jsonl"));
  // Later there may be another one, by whoever comes first then.
  now += seconds(20);
  begin(4);
  settle();
  EXPECT_THAT(logged, SizeIs(2));
  EXPECT_EQ(lines_of(folder.path() + "/barrier-1.jsonl").front()["by"], 4);
}

// A full recorder fits a message; bytes changed, cut off or added are refused or read as something
// that is written alike.
TEST(Calls, SurviveTheWireOrAreRefused) {
  std::vector<CallRecord> calls;
  for (std::uint32_t i = 0; i < Recorder::kCalls; ++i) {
    calls.push_back(call(i, static_cast<CallRecord::State>(i % 3)));
    calls.back().kind = CallKind::kAllToAll;
    calls.back().algorithm = "two_level_pipelined";
  }
  EXPECT_LE(encode_calls(calls, kNow).size(), kMaxCallsBytes);
  calls.resize(3);
  const std::string good = encode_calls(calls, kNow);
  const auto read = decode_calls(good, TimePoint(seconds(50)));
  ASSERT_TRUE(read);
  ASSERT_THAT(*read, SizeIs(3));
  EXPECT_STREQ((*read)[1].algorithm, "two_level_pipelined");
  EXPECT_EQ((*read)[2].bytes, 77u);
  EXPECT_EQ((*read)[1].last_arrival, TimePoint(seconds(48)));
  EXPECT_EQ((*read)[1].first_message, TimePoint{});
  std::mt19937 random(4);
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] = static_cast<char>(random());
    if (i % 4 == 0) bytes.resize(random() % (bytes.size() + 5));
    const auto decoded = decode_calls(bytes, kNow);
    if (!decoded) {
      ++refused;
      continue;
    }
    const std::string again = encode_calls(*decoded, kNow);
    ASSERT_EQ(encode_calls(*decode_calls(again, kNow), kNow), again) << "trial " << i;
  }
  EXPECT_GT(refused, 1'000);
  EXPECT_FALSE(decode_calls(std::string(kMaxCallsBytes + 1, '\0'), kNow));
}

}  // namespace
}  // namespace motley
