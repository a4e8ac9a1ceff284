// Where a controller that listens at all addresses of its host is for others.
#include "comm/bootstrap/interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/options.h"

namespace motley {
namespace {

using testing::HasSubstr;

TEST(Interfaces, AUrlForOthersNamesOneAddress) {
  EXPECT_EQ(reachable_url("tcp://10.1.2.3:4000"), "tcp://10.1.2.3:4000");
  EXPECT_EQ(reachable_url("tcp://[fd00::1]:4000"), "tcp://[fd00::1]:4000");
  const std::vector<Interface> all = interfaces();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(reachable_url("tcp://[::]:4000"), all.front().address.url(4000));
  if (all.front().address.is_v6()) GTEST_SKIP() << "this machine has no IPv4 address";
  EXPECT_EQ(reachable_url("tcp://0.0.0.0:4000"), all.front().address.url(4000));
}

// A rank finds the controller at the address that it publishes.
TEST(Bootstrap, AControllerThatListensEverywhereSaysWhere) {
  const ControllerServer server({.bind = "tcp://0.0.0.0:0", .size = 1});
  EXPECT_THAT(server.address(), testing::Not(HasSubstr("0.0.0.0")));
  Options options;
  options.controller = server.address();
  EXPECT_EQ(connect_control(options, Clock::real())->controller(), server.address());
}

}  // namespace
}  // namespace motley
