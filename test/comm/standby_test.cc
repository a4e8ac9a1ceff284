// A standby of the controller over real sockets on 127.0.0.1: it serves when the first has died or
// is stopped, never before, and ranks find it by their list.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <stdexcept>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "test/comm/forked.h"
#include "test/support/errors.h"

namespace motley {
namespace {

using test::expect_error;
using testing::HasSubstr;

constexpr Duration kSoon = seconds(20);  // never reached where the code is right
constexpr Duration kLease = seconds(1);

TimePoint soon() { return Clock::real().now() + kSoon; }

ControllerOptions first_of(int size) { return {.size = size, .token = "t", .lease = kLease}; }

ControllerOptions standby_of(int size, const std::string& first) {
  ControllerOptions options = first_of(size);
  options.standby_for = {first};
  options.first_timeout = kSoon;
  return options;
}

std::unique_ptr<ControlClient> connect(const std::string& controllers, int rank, int size) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.controller = controllers;
  options.token = "t";
  options.join_timeout = kSoon;
  options.heartbeat = seconds(0.02);
  return connect_control(options, Clock::real());
}

// Adds until the controller at hand has answered, whichever that is then.
std::int64_t add(ControlClient& control) {
  for (const TimePoint end = soon(); Clock::real().now() < end;) {
    try {
      return control.add("n", 1);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;
    }
  }
  return -1;
}

TEST(Standby, ServesWhenTheFirstHasDiedAndNotBefore) {
  auto first = std::make_unique<ControllerServer>(first_of(2));
  const ControllerServer standby(standby_of(2, first->address()));
  const std::string list = first->address() + "," + standby.address();
  const auto zero = connect(list, 0, 2), one = connect(list, 1, 2);
  EXPECT_EQ(zero->controller(), first->address());
  // Longer than a lease, in which the standby asks eight times.
  for (const TimePoint end = Clock::real().now() + 2 * kLease; Clock::real().now() < end;) {
    add(*zero);
    ASSERT_FALSE(standby.serves());
  }
  const std::int64_t before = add(*one);
  first.reset();
  EXPECT_EQ(add(*zero), before + 1) << "it knows from the ranks what the first knew";
  EXPECT_EQ(add(*one), before + 2);
  EXPECT_TRUE(standby.serves());
  EXPECT_EQ(zero->controller(), standby.address());
  EXPECT_THAT(zero->lost_ranks(), testing::IsEmpty());
}

// Ranks begin with whichever they hear, also if the first of their list is not there.
TEST(Standby, IsFoundByARankThatJoinsLater) {
  auto first = std::make_unique<ControllerServer>(first_of(2));
  const ControllerServer standby(standby_of(2, first->address()));
  const std::string list = first->address() + "," + standby.address();
  first.reset();
  const auto control = connect(list, 0, 2);
  EXPECT_TRUE(standby.serves());
  EXPECT_EQ(add(*control), 1);
}

TEST(Standby, TakesThePlaceOfAFirstThatIsStoppedWhichThenEnds) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  test::Forked first([&] {
    ControllerOptions options = first_of(1);
    std::promise<void> ended;
    options.on_end = [&](const std::string& why) {
      std::fprintf(stderr, "%s\n", why.c_str());
      ended.set_value();
    };
    const ControllerServer server(options);
    const std::string& text = server.address();
    if (write(ends[1], text.c_str(), text.size() + 1) < 0) _exit(2);
    ended.get_future().wait();
    if (server.serves()) throw std::runtime_error("it serves all the same");
  });
  char address[64] = {};
  ASSERT_GT(read(ends[0], address, sizeof address - 1), 0);
  close(ends[0]);
  close(ends[1]);
  const ControllerServer standby(standby_of(1, address));
  const auto control = connect(std::string(address) + "," + standby.address(), 0, 1);
  EXPECT_EQ(add(*control), 1);
  std::int64_t sum = 1;
  // A busy machine may hold the standby up so long that the rank goes back to the first: once more.
  for (const TimePoint end = soon(); !first.ended() && Clock::real().now() < end;) {
    first.signal(SIGSTOP);
    siginfo_t stopped;  // which it is a while after the signal
    waitid(P_PID, static_cast<id_t>(first.pid()), &stopped, WSTOPPED | WEXITED | WNOWAIT);
    EXPECT_EQ(add(*control), ++sum);
    EXPECT_TRUE(standby.serves());
    first.signal(SIGCONT);
    const TimePoint told = Clock::real().now() + 2 * kLease;
    while (!first.ended() && Clock::real().now() < told) EXPECT_EQ(add(*control), ++sum);
  }
  ASSERT_TRUE(first.ended()) << "it is told that another serves";
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(add(*control), ++sum);
  EXPECT_EQ(control->controller(), standby.address());
}

TEST(Standby, SaysThatNobodyIsThereToStandByFor) {
  ControllerOptions options = standby_of(1, "tcp://nobody.invalid:4000");  // RFC 6761: no address
  options.first_timeout = seconds(0.3);
  expect_error(ErrorCode::kTimeout, {"nobody.invalid:4000", "0.3"},
               [&] { const ControllerServer standby(options); });
  options.standby_for = {"carrier pigeon"};
  expect_error(ErrorCode::kInvalid, {"carrier pigeon"},
               [&] { const ControllerServer standby(options); });
}

TEST(Standby, RefusesToStandByForAnotherStandby) {
  const ControllerServer first(first_of(1));
  const ControllerServer standby(standby_of(1, first.address()));
  expect_error(ErrorCode::kInvalid, {standby.address(), "neither would ever serve"},
               [&] { const ControllerServer another(standby_of(1, standby.address())); });
}

TEST(Standby, RefusesAnotherJobsController) {
  const ControllerServer first(first_of(1));
  ControllerOptions options = standby_of(1, first.address());
  options.token = "another";
  expect_error(ErrorCode::kInvalid, {first.address(), "token"},
               [&] { const ControllerServer standby(options); });
}

TEST(Standby, OnlyControllersThatWereStartedCanBeOneOfSeveral) {
  Options options;
  options.size = 2;
  options.controller = "tcp://127.0.0.1:1,rank0://127.0.0.1:2";
  expect_error(ErrorCode::kInvalid, {"rank0://127.0.0.1:2", "2 controllers"},
               [&] { Communicator::join(options); });
}

}  // namespace
}  // namespace motley
