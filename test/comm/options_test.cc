// Options come from the environment, and a wrong value is refused by variable, value and range.
#include "comm/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "comm/error.h"

namespace motley {
namespace {

using testing::HasSubstr;

// Reads the options with these variables set and no others.
Options options_with(const std::map<std::string, std::string>& variables) {
  return Options::from_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Options, AreTheDefaultsInAnEmptyEnvironment) {
  const Options options = options_with({});
  EXPECT_EQ(options.to_text(), Options().to_text());
}

TEST(Options, ReadEveryVariable) {
  const Options options = options_with({{"MOTLEY_RANK", "3"},
                                        {"MOTLEY_SIZE", "4"},
                                        {"MOTLEY_CONTROLLER", "tcp://[::1]:99"},
                                        {"MOTLEY_TOKEN", "secret"},
                                        {"MOTLEY_SLOW", "2.5"},
                                        {"MOTLEY_TRANSPORT", "shm"},
                                        {"MOTLEY_ALGORITHM", "ring"},
                                        {"MOTLEY_CMA", "off"},
                                        {"MOTLEY_TOPOLOGY", "probe"},
                                        {"MOTLEY_IFACE", "eth1"},
                                        {"MOTLEY_PORTS", "29600-29699"},
                                        {"MOTLEY_HOST", "a"},
                                        {"MOTLEY_TIMEOUT", "0.25"},
                                        {"MOTLEY_JOIN_TIMEOUT", "7"},
                                        {"MOTLEY_HEARTBEAT", "0.05"},
                                        {"MOTLEY_LEASE", "1e0"},
                                        {"MOTLEY_DUMP", "/dumps"},
                                        {"MOTLEY_PROGRESS_THREAD", "off"},
                                        {"MOTLEY_SEGMENT_BYTES", "4096"},
                                        {"MOTLEY_STAGING_SLOTS", "3"},
                                        {"MOTLEY_STAGING_BYTES", "2000000"},
                                        {"MOTLEY_UCX_WINDOW", "1000000"},
                                        {"MOTLEY_UCX_RENDEZVOUS", "0"},
                                        {"MOTLEY_UCX_DEVICE", "staged"},
                                        {"MOTLEY_LOG_LEVEL", "0"}});
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.controller, "tcp://[::1]:99");
  EXPECT_EQ(options.token, "secret");
  EXPECT_EQ(options.slow, 2.5);
  EXPECT_EQ(options.transport, "shm");
  EXPECT_EQ(options.algorithm, "ring");
  EXPECT_EQ(options.cma, "off");
  EXPECT_EQ(options.topology, "probe");
  EXPECT_EQ(options.interface, "eth1");
  EXPECT_EQ(options.ports, "29600-29699");
  EXPECT_EQ(options.host, "a");
  EXPECT_EQ(options.timeout, seconds(0.25));
  EXPECT_EQ(options.join_timeout, seconds(7));
  EXPECT_EQ(options.heartbeat, seconds(0.05));
  EXPECT_EQ(options.lease, seconds(1));
  EXPECT_EQ(options.dump, "/dumps");
  EXPECT_FALSE(options.progress_thread);
  EXPECT_EQ(options.segment_bytes, 4096u);
  EXPECT_EQ(options.staging_slots, 3);
  EXPECT_EQ(options.staging_bytes, 2'000'000u);
  EXPECT_EQ(options.ucx_window, 1'000'000u);
  EXPECT_EQ(options.ucx_rendezvous, 0);
  EXPECT_EQ(options.ucx_device, "staged");
  EXPECT_EQ(options.log_level, 0);
}

TEST(Options, TakeAnEmptyVariableForUnset) {
  EXPECT_EQ(options_with({{"MOTLEY_SIZE", ""}, {"MOTLEY_TIMEOUT", ""}}).size, 1);
}

TEST(Options, ShowTheTokenToNobody) {
  const Options options = options_with({{"MOTLEY_TOKEN", "hush-hush"}});
  EXPECT_THAT(options.to_text(), Not(HasSubstr("hush-hush")));
  EXPECT_THAT(options.to_text(), HasSubstr("MOTLEY_TOKEN"));
}

class BadOption : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(BadOption, IsRefusedByNameAndValue) {
  const auto& [variable, value] = GetParam();
  try {
    options_with({{variable, value}});
    FAIL() << variable << "=" << value << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalid);
    EXPECT_THAT(error.what(), HasSubstr(variable));
    EXPECT_THAT(error.what(), HasSubstr(value));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Values, BadOption,
    testing::Values(std::pair{"MOTLEY_SIZE", "0"}, std::pair{"MOTLEY_SIZE", "four"},
                    std::pair{"MOTLEY_SIZE", "99999999999999999999"},
                    std::pair{"MOTLEY_RANK", "1"},  // the size is 1
                    std::pair{"MOTLEY_RANK", "-1"}, std::pair{"MOTLEY_RANK", "0x0"},
                    std::pair{"MOTLEY_SIZE", "2"},  // without a controller
                    std::pair{"MOTLEY_SLOW", "nan"}, std::pair{"MOTLEY_SLOW", "0.5"},
                    std::pair{"MOTLEY_TIMEOUT", "inf"}, std::pair{"MOTLEY_TIMEOUT", "-1"},
                    std::pair{"MOTLEY_TIMEOUT", "1s"}, std::pair{"MOTLEY_TRANSPORT", "tcp"},
                    std::pair{"MOTLEY_ALGORITHM", "rings"}, std::pair{"MOTLEY_CMA", "maybe"},
                    std::pair{"MOTLEY_PORTS", "29699-29600"},
                    std::pair{"MOTLEY_LEASE", "0.3"},  // under two heartbeats of 0.2 s
                    std::pair{"MOTLEY_SEGMENT_BYTES", "0"}, std::pair{"MOTLEY_LOG_LEVEL", "4"}));

}  // namespace
}  // namespace motley
