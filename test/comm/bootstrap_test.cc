// How ranks find each other: names of networks and ports, the file that rank 0 writes, and whole
// joins without motley-run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "comm/bootstrap/connect.h"
#include "comm/bootstrap/interface.h"
#include "comm/bootstrap/meeting_file.h"
#include "comm/bootstrap/peers.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/options.h"
#include "test/support/temporary_folder.h"

namespace motley {
namespace {

using testing::HasSubstr;

std::string message_of(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(RendezvousUrl, SaysWhereAndHow) {
  const auto started = RendezvousUrl::parse("tcp://[fd00::1]:99");
  EXPECT_EQ(started.scheme, RendezvousUrl::kStarted);
  EXPECT_EQ(started.endpoint.host, "fd00::1");
  EXPECT_EQ(started.endpoint.port, 99);
  EXPECT_EQ(RendezvousUrl::parse("rank0://a:1").scheme, RendezvousUrl::kInRankZero);
  EXPECT_EQ(RendezvousUrl::parse("file:/a/b").path, "/a/b");
  EXPECT_EQ(RendezvousUrl::parse("file:///a/b").path, "/a/b");
  for (const char* wrong : {"", "a:1", "tcp://", "tcp://a", "tcp://a:0", "tcp://a:65536",
                            "tcp://fd00::1:99", "tcp://:1", "file:a", "udp://a:1", "tcp:/a:1"}) {
    EXPECT_THAT(message_of([&] { RendezvousUrl::parse(wrong); }, ErrorCode::kInvalid),
                HasSubstr("MOTLEY_CONTROLLER"))
        << wrong;
  }
}

TEST(PortRange, IsTwoPorts) {
  EXPECT_TRUE(PortRange::parse("").any());
  EXPECT_EQ(PortRange::parse("29600-29699").high, 29699);
  EXPECT_EQ(PortRange::parse("5").low, 5);
  for (const char* wrong : {"0-5", "9-5", "1-65536", "a", "1-", "-1", "1-2-3"}) {
    EXPECT_THAT(message_of([&] { PortRange::parse(wrong); }, ErrorCode::kInvalid),
                HasSubstr("MOTLEY_PORTS"))
        << wrong;
  }
}

Interface interface_of(const std::string& name, const std::string& address, int prefix) {
  return {name, resolve(address).at(0), prefix};
}

TEST(Interfaces, AreChosenByNameOrSubnet) {
  const std::vector<Interface> all = {
      interface_of("docker0", "172.17.0.1", 16), interface_of("eth0", "10.1.2.3", 24),
      interface_of("eth0", "fd00:1::3", 64), interface_of("lo", "127.0.0.1", 8)};
  const auto chosen = [&](const char* wanted) {
    std::string text;
    for (const Interface& it : select_interfaces(all, wanted)) text += it.address.to_text() + " ";
    return text;
  };
  EXPECT_EQ(chosen(""), "172.17.0.1 10.1.2.3 fd00:1::3 127.0.0.1 ");
  EXPECT_EQ(chosen("eth0"), "10.1.2.3 fd00:1::3 ");
  EXPECT_EQ(chosen("10.0.0.0/8"), "10.1.2.3 ");
  EXPECT_EQ(chosen("fd00::/8"), "fd00:1::3 ");
  EXPECT_EQ(chosen("0.0.0.0/0"), "172.17.0.1 10.1.2.3 127.0.0.1 ");
  EXPECT_THAT(message_of([&] { chosen("eth1"); }, ErrorCode::kUnavailable),
              testing::AllOf(HasSubstr("eth1"), HasSubstr("docker0 172.17.0.1/16")));
  for (const char* wrong : {"10.1.0.0/33", "10.1.0.0/16x", "10.1.0.0/", "eth0/16"}) {
    EXPECT_THAT(message_of([&] { chosen(wrong); }, ErrorCode::kInvalid), HasSubstr(wrong));
  }
}

TEST(MeetingFile, IsReadAsItWasWritten) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job";
  EXPECT_FALSE(read_meeting_file(path));
  write_meeting_file(path, {.token = "secret", .addresses = {"tcp://10.0.0.1:1", "tcp://a:2"}});
  const auto place = read_meeting_file(path);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->token, "secret");
  EXPECT_THAT(place->addresses, testing::ElementsAre("tcp://10.0.0.1:1", "tcp://a:2"));
  EXPECT_EQ(std::filesystem::status(path).permissions() & std::filesystem::perms::others_all,
            std::filesystem::perms::none);
  std::ofstream(path) << "something else\n";
  EXPECT_THAT(message_of([&] { read_meeting_file(path); }, ErrorCode::kInvalid), HasSubstr(path));
}

// In a folder of all, such as /tmp, a stranger may have put something at the names that are used.
TEST(MeetingFile, FollowsNoLinkAndTrustsNoOtherUser) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job", victim = folder / "victim";
  std::ofstream(victim) << "precious\n";
  std::filesystem::create_symlink(victim, path + "." + std::to_string(getpid()));
  write_meeting_file(path, {.token = "secret", .addresses = {"tcp://10.0.0.1:1"}});
  EXPECT_EQ(std::filesystem::file_size(victim), 9u);
  EXPECT_TRUE(read_meeting_file(path));
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  message_of([&] { read_meeting_file(folder / "pipe"); }, ErrorCode::kInvalid);
  constexpr uid_t kNobody = 65534;
  if (chown(path.c_str(), kNobody, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "needs root";
  EXPECT_THAT(message_of([&] { read_meeting_file(path); }, ErrorCode::kInvalid),
              testing::AllOf(HasSubstr("user 65534"), HasSubstr(path)));
}

// Ranks as threads, each with options of its own.
void run_job(int size, const Options& common, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Options options = common;
      options.rank = rank;
      options.size = size;
      options.transport = "shm";
      try {
        Communicator comm = Communicator::join(options);
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void reduce(Communicator& comm) {
  std::vector<int> data(1000, comm.rank());
  comm.all_reduce(data, ReduceOp::kSum).wait();
  EXPECT_THAT(data, testing::Each(comm.size() * (comm.size() - 1) / 2));
}

// A port of 127.0.0.1 that nobody has, though somebody might take it at once.
int free_port() {
  const ControllerServer server({.size = 1});
  return RendezvousUrl::parse(server.address()).endpoint.port;
}

TEST(Bootstrap, RankZeroRunsTheControllerAtAKnownPort) {
  Options options;
  options.controller = "rank0://127.0.0.1:" + std::to_string(free_port());
  options.token = "secret";
  run_job(3, options, reduce);
}

// The path still leads to an earlier job, which is gone.
TEST(Bootstrap, RanksMeetByAFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job";
  write_meeting_file(path, {.token = "old", .addresses = {"tcp://127.0.0.1:1"}});
  Options options;
  options.controller = "file:" + path;
  run_job(3, options, reduce);
  EXPECT_FALSE(std::filesystem::exists(path)) << "rank 0 takes it away";
}

// Rank 0 is done first, but the others find the controller until they are done, too.
TEST(Bootstrap, TheControllerOutlivesTheLoopOfRankZero) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job";
  Options options;
  options.controller = "file:" + path;
  options.heartbeat = seconds(0.02);
  options.lease = seconds(0.2);
  run_job(2, options, [](Communicator& comm) {
    if (comm.rank() == 0) return;
    // Rank 0 has gone once its goodbye is known; three leases later it would be missed.
    for (int i = 0; i < 20; ++i) {
      comm.clock().sleep_until(comm.clock().now() + seconds(0.05));
      EXPECT_EQ(comm.control()->add("counter", 1), i + 1);
    }
  });
}

// Scenario 19 of the list of reports: the port of the meeting place is taken.
TEST(Bootstrap, Scenario19APortInUseIsNamed) {
  const ControllerServer other({.bind = "tcp://0.0.0.0:0", .size = 1});
  const int port = RendezvousUrl::parse(other.address()).endpoint.port;
  Options options;
  options.size = 2;
  options.controller = "rank0://127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(message_of([&] { Communicator::join(options); }, ErrorCode::kIo),
              testing::AllOf(HasSubstr(std::to_string(port)), HasSubstr("in use")));
}

// Scenario 19: a port of the range from which the kernel gives them out, which it has given to
// somebody's connection. Once that is closed, the same job meets there: at an address of its own,
// lest the kernel give the port to another connection meanwhile.
TEST(Bootstrap, Scenario19APortOfAConnectionIsNamedAndFreeAfterIt) {
  const ControllerServer somebody({.bind = "tcp://127.0.0.1:0", .size = 1});
  const std::string own = "127.0.0.77";
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  socklen_t length = 0;
  sockaddr_storage at = resolve(own).at(0).socket_address(0, length);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&at), length), 0);
  at = resolve("127.0.0.1")
           .at(0)
           .socket_address(RendezvousUrl::parse(somebody.address()).endpoint.port, length);
  ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&at), length), 0);
  length = sizeof at;
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length), 0);
  const std::string port = std::to_string(ntohs(reinterpret_cast<const sockaddr_in&>(at).sin_port));
  Options options;
  options.size = 2;
  options.token = "secret";
  options.controller = "rank0://" + own + ":" + port;
  EXPECT_THAT(message_of([&] { Communicator::join(options); }, ErrorCode::kIo),
              testing::AllOf(HasSubstr(port), HasSubstr("in use")));
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(fd);
  run_job(2, options, reduce);
}

// Scenario 18: of the ports that may be used, the first free one is; if all are taken, the error
// names them.
TEST(Bootstrap, Scenario18TakesAPortInTheRangeOrNamesTheRange) {
  const int port = free_port();
  const std::string range = std::to_string(port);
  const ControllerServer first({.bind = "tcp://127.0.0.1:0", .size = 1, .ports = range});
  EXPECT_EQ(RendezvousUrl::parse(first.address()).endpoint.port, port);
  EXPECT_THAT(
      message_of(
          [&] { ControllerServer({.bind = "tcp://127.0.0.1:0", .size = 1, .ports = range}); },
          ErrorCode::kIo),
      HasSubstr(range + "-" + range));
}

// Scenario 15: the name of rank 0's host resolves to an address of this host's loopback, as
// Debian's /etc/hosts makes it; nobody may take that for rank 0's address.
TEST(Bootstrap, Scenario15ANameThatResolvesToLoopbackWillDo) {
  Options options;
  options.controller = "rank0://localhost:" + std::to_string(free_port());
  options.token = "secret";
  run_job(2, options, reduce);
}

// As in a container without /etc/hosts.
TEST(Bootstrap, LocalhostNeedsNobodyToKnowIt) {
  for (const char* name : {"localhost", "ranks.of.this.test.localhost"}) {
    const std::vector<IpAddress> addresses = resolve(name);
    EXPECT_FALSE(addresses.empty()) << name;
    for (const IpAddress& address : addresses) EXPECT_TRUE(address.is_loopback()) << name;
  }
}

TEST(Bootstrap, ANameWithoutAddressIsNamed) {
  Options options;
  options.rank = 1;
  options.size = 2;
  options.join_timeout = seconds(0.1);
  options.controller = "rank0://no-such-host.invalid:4000";
  EXPECT_THAT(message_of([&] { Communicator::join(options); }, ErrorCode::kTimeout),
              HasSubstr("no-such-host.invalid has no address"));
}

// Known to be dead before it joined: nobody waits for join_timeout.
TEST(Bootstrap, ARankThatDiedBeforeJoiningIsLost) {
  ControllerServer controller({.size = 2, .token = "t"});
  controller.report_lost(1, "killed by signal 9");
  Options options;
  options.size = 2;
  options.controller = controller.address();
  options.token = "t";
  EXPECT_THAT(message_of([&] { Communicator::join(options); }, ErrorCode::kPeerLost),
              testing::AllOf(HasSubstr("rank 1"), HasSubstr("signal 9")));
}

// The last rank comes when another's time is just over: nobody is missing, so nobody is blamed.
TEST(Bootstrap, AMeetingThatIsCompleteAtTheDeadlineSucceeds) {
  const ControllerServer controller({.size = 2, .token = "t"});
  const TimePoint later = Clock::real().now() + seconds(30);
  const auto meet = [&](int rank, bool is_late) {
    Options options;
    options.rank = rank;
    options.size = 2;
    options.controller = controller.address();
    options.token = "t";
    const auto control = connect_to_job(options, Clock::real(), later);
    while (is_late && control->add("announced/1", 0) == 0) {
    }
    EXPECT_EQ(meet_peers(*control, options, is_late ? TimePoint() : later).size(), 2u);
  };
  std::thread other([&] { meet(1, false); });
  EXPECT_NO_THROW(meet(0, true));
  other.join();
}

TEST(Bootstrap, TellsTheLogWhatItDoes) {
  const test::TemporaryFolder folder;
  const std::string path = folder / "job";
  std::mutex mutex;
  std::string text;
  Options options;
  options.controller = "file:" + path;
  options.log = [&](LogLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    text += line + "\n";
  };
  run_job(2, options, [](Communicator&) {});
  EXPECT_THAT(text, testing::AllOf(HasSubstr("rank 1 of 2: the controller is at tcp://"),
                                   HasSubstr("1 hosts, joined by shm")));
  text.clear();
  options.log_level = static_cast<int>(LogLevel::kWarning);
  run_job(2, options, [](Communicator&) {});
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace motley
