// What a PartialReducer refuses: options out of their ranges, by name, value and range; and calls
// that have no meaning.
#include <cmath>
#include <string>

#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

struct BadOption {
  const char* says;  // the option, its value and what is allowed
  PartialOptions options;
};

// Every number and enumeration, on each side of its range that it can leave. With 3 ranks.
const BadOption kBadOptions[] = {
    {"group_size is -1. Use 2 to 3, which is all ranks, or 0", {.group_size = -1}},
    {"group_size is 1. Use 2 to 3", {.group_size = 1}},
    {"group_size is 4. Use 2 to 3", {.group_size = 4}},
    {"largest_group is 1. Use 2 (group_size, 2 at least) to 3", {.largest_group = 1}},
    {"largest_group is 2. Use 3 (group_size, 2 at least) to 3",
     {.group_size = 3, .largest_group = 2}},
    {"largest_group is -1. Use 2", {.group_size = 0, .largest_group = -1}},
    {"largest_group is 99. Use 2 (group_size, 2 at least) to 3, which is all ranks, or 0",
     {.largest_group = 99}},
    {"timeout in seconds is -1. Use 0 to 1000000", {.timeout = seconds(-1)}},
    {"timeout in seconds is 2000000. Use 0 to 1000000", {.timeout = seconds(2e6)}},
    {"least_patience in seconds is -1. Use 0 to 1000000", {.least_patience = seconds(-1)}},
    {"least_patience in seconds is 2000000. Use 0", {.least_patience = seconds(2e6)}},
    {"linger in steps is -0.5. Use 0 to 1", {.linger = -0.5}},
    {"linger in steps is 2. Use 0 to 1", {.linger = 2}},
    {"linger in steps is nan. Use 0 to 1", {.linger = std::nan("")}},
    {"local_steps is -1. Use 0 or more", {.local_steps = -1}},
    {"guard is 99. Use kBridge (0) or kNone (1)", {.guard = static_cast<Guard>(99)}},
    {"payload is 99. Use kExact (0), kBFloat16 (1) or kInt8 (2)",
     {.payload = static_cast<Payload>(99)}},
    {"the rule is 99. Use", {.weighting = {.rule = static_cast<WeightRule>(99)}}},
    {"lambda is 0. Use a number above 0, up to 1", {.weighting = {.lambda = 0}}},
    {"lambda is 1.5. Use a number above 0, up to 1", {.weighting = {.lambda = 1.5}}},
    {"lambda is 1. Use a number in (0, 1)",
     {.weighting = {.rule = WeightRule::kPublished, .lambda = 1}}},
    {"slope is -1. Use a number from 0 on", {.weighting = {.slope = -1}}},
    {"slack is -1. Use a number from 0 on", {.weighting = {.slack = -1}}},
    {"clip is -1. Use a number from 0 on", {.weighting = {.clip = -1}}},
};

TEST(PartialReduce, RefusesOptionsThatAreOutOfRange) {
  run(3, [](Communicator& comm, LocalControl&) {
    for (const BadOption& bad : kBadOptions) {
      expect_error(ErrorCode::kInvalid, bad.says, [&] { PartialReducer(comm, bad.options); });
    }
    PartialReducer(comm, {.group_size = 0, .largest_group = 3});
    PartialReducer(comm, {.group_size = 3, .linger = 0, .least_patience = {}, .local_steps = 0});
    PartialReducer(comm, {.timeout = seconds(1e6), .least_patience = seconds(1e6)});
  });
  // One rank alone has no groups, but the other options hold there, too.
  Communicator alone(InprocNetwork::single(), Clock::real(), {});
  for (const BadOption& bad : kBadOptions) {
    if (std::string(bad.says).find("group") != std::string::npos) {
      PartialReducer(alone, bad.options);
    } else {
      expect_error(ErrorCode::kInvalid, bad.says, [&] { PartialReducer(alone, bad.options); });
    }
  }
}

TEST(PartialReduce, ChecksItsArguments) {
  run(3, [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 2});
    reducer.leave();
    std::vector<float> model(1);
    expect_error(ErrorCode::kInvalid, "leave", [&] { reducer.average(model, 0); });
  });
  InprocNetwork network(2);
  Communicator no_controller(network.transport(0), Clock::real(), {});
  expect_error(ErrorCode::kInvalid, "controller",
               [&] { PartialReducer(no_controller, {.group_size = 2}); });
  Communicator alone(InprocNetwork::single(), Clock::real(), {});
  std::vector<float> model = {0.1f};
  EXPECT_TRUE(PartialReducer(alone, {}).average(model, 0).solo());
  EXPECT_THAT(model, ElementsAre(0.1f));
}

}  // namespace
}  // namespace motley::test
