// A communicator gets the topology that its options ask for, the same on all ranks, and a wrong
// file is refused on all ranks alike.
#include "comm/topology/settle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <string>

#include "comm/error.h"
#include "comm/local.h"
#include "comm/topology.h"
#include "test/support/rank_runner.h"
#include "test/support/temporary_folder.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTwoHosts = "motley topology 1\nhost a ranks=0,2\nhost b ranks=1\n";

class SettleFile : public ::testing::Test {
 protected:
  void write(const std::string& text) { std::ofstream(path_) << text; }
  Options options() const {
    Options options;
    options.topology = path_;
    return options;
  }

  // Every rank is refused with `code` and `fact`.
  void expect_refused(ErrorCode code, const std::string& fact) {
    std::atomic<int> refused = 0;
    const auto body = [&](Communicator& comm) {
      try {
        settle_topology(comm, {0, 0, 0});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), code);
        EXPECT_THAT(error.what(), HasSubstr(fact));
        ++refused;
      }
    };
    test::run_ranks_on("sim", 3, body, options());
    EXPECT_EQ(refused, 3);
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_ / "topology";
};

TEST_F(SettleFile, IsReadForAllRanks) {
  write(kTwoHosts);
  std::atomic<int> ranks = 0;
  run_local(
      3,
      [&](Communicator& comm) {
        EXPECT_EQ(comm.topology(), Topology::parse(kTwoHosts, "text"));
        ++ranks;
      },
      options());
  EXPECT_EQ(ranks, 3);
}

TEST_F(SettleFile, IsRefusedOnAllRanksIfItIsWrong) {
  write("motley topology 1\nhost a ranks=0-2 colour=red\n");
  expect_refused(ErrorCode::kInvalid, path_ + ":2: ");
  write("motley topology 1\nhost a ranks=0,1\n");
  expect_refused(ErrorCode::kInvalid, "2 ranks, but the job has 3");
  std::remove(path_.c_str());
  expect_refused(ErrorCode::kIo, path_);
}

TEST(Settle, KnowsHostsAndTheTransportsLink) {
  Options options;
  options.topology = "hosts";
  test::run_ranks_on(
      "sim", 4,
      [](Communicator& comm) {
        settle_topology(comm, {0, 0, 1, 1});
        EXPECT_EQ(comm.topology().hosts().size(), 2U);
        EXPECT_FALSE(comm.topology().same_host(1, 2));
        EXPECT_EQ(comm.topology().costs().between, Link{});
        settle_topology(comm, {0, 0, 0, 0});
        EXPECT_EQ(comm.topology().hosts().size(), 1U);
        EXPECT_EQ(comm.topology().costs().within, Link{});
      },
      options);
}

// Only a probe finds ports.
TEST(Settle, ProbesOfItselfWhereThereAreSeveralHosts) {
  test::run_ranks_on("sim", 4, [](Communicator& comm) {
    settle_topology(comm, {0, 0, 0, 0});
    EXPECT_EQ(comm.topology().hosts()[0].cores, 0);
    settle_topology(comm, {0, 0, 1, 1});
    ASSERT_EQ(comm.topology().hosts().size(), 2U);
    EXPECT_EQ(comm.topology().hosts()[1].ports, 1);
    EXPECT_GT(comm.topology().hosts()[1].port_bytes_per_second, 0);
  });
}

TEST(Settle, ProbesWhereAsked) {
  Options options;
  options.topology = "probe";
  run_local(
      2,
      [](Communicator& comm) {
        EXPECT_EQ(comm.topology().hosts().size(), 1U);
        EXPECT_GT(comm.topology().hosts()[0].cores, 0);
        EXPECT_NE(comm.topology().costs().within, TopologyCosts{}.within);
      },
      options);
}

TEST(UseTopology, RefusesAnotherNumberOfRanks) {
  run_local(2, [](Communicator& comm) {
    EXPECT_THROW(comm.use_topology(Topology::uniform(3)), Error);
    comm.use_topology(Topology::hosts({0, 1}, {}));
    EXPECT_EQ(comm.topology(), Topology::hosts({0, 1}, {}));
  });
}

}  // namespace
}  // namespace motley
