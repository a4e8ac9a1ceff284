// How ranks find their place and each other: what schedulers leave in the environment, names of
// networks and ports, the file that rank 0 writes, and whole joins without motley-run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "comm/bootstrap/identity.h"
#include "comm/bootstrap/interface.h"
#include "comm/bootstrap/meeting_file.h"
#include "comm/bootstrap/rendezvous_url.h"
#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/options.h"

namespace motley {
namespace {

using testing::HasSubstr;

// An environment of these variables and no others.
Environment variables(const std::map<std::string, std::string>& all) {
  return [all](const char* name) {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

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

const std::map<std::string, std::string> kTorchrun = {{"RANK", "3"},
                                                      {"WORLD_SIZE", "4"},
                                                      {"LOCAL_RANK", "1"},
                                                      {"MASTER_ADDR", "node-a"},
                                                      {"MASTER_PORT", "29500"},
                                                      {"TORCHELASTIC_RUN_ID", "run7"},
                                                      {"TORCHELASTIC_RESTART_COUNT", "0"}};
const std::map<std::string, std::string> kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                                                     {"OMPI_COMM_WORLD_SIZE", "2"},
                                                     {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                                     {"PMIX_NAMESPACE", "815333377"},
                                                     {"TMPDIR", "/scratch"}};
const std::map<std::string, std::string> kPmi = {
    {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
const std::map<std::string, std::string> kSlurm = {{"SLURM_PROCID", "5"},
                                                   {"SLURM_STEP_NUM_TASKS", "8"},
                                                   {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
                                                   {"SLURM_JOB_ID", "4711"},
                                                   {"SLURM_STEP_ID", "2"}};

TEST(Identity, OfTorchrun) {
  const Options options = Options::from_environment(variables(kTorchrun));
  EXPECT_EQ(options.rank, 3);
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.controller, "rank0://node-a:29501") << "its own store has 29500";
  EXPECT_THAT(options.token, HasSubstr("run7"));
  auto restarted = kTorchrun;
  restarted["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(Options::from_environment(variables(restarted)).token, options.token);
}

TEST(Identity, OfOpenMpiOnOneHost) {
  const Options options = Options::from_environment(variables(kOpenMpi));
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 2);
  EXPECT_THAT(options.controller, testing::StartsWith("file:/scratch/motley-"));
  EXPECT_THAT(options.controller, testing::EndsWith("openmpi-815333377"));
}

TEST(Identity, OfPmiOnOneHost) {
  const Options options = Options::from_environment(variables(kPmi));
  EXPECT_EQ(options.rank, 0);
  EXPECT_EQ(options.size, 2);
  EXPECT_THAT(options.controller, testing::StartsWith("file:/tmp/motley-"));
}

TEST(Identity, OfASlurmStep) {
  const Options options = Options::from_environment(variables(kSlurm));
  EXPECT_EQ(options.rank, 5);
  EXPECT_EQ(options.size, 8);
  EXPECT_EQ(options.controller, "rank0://gpu07:25378");  // 20000 + (4711 * 16 + 2) % 10000
  EXPECT_EQ(options.token, "slurm-4711.2");
  // A batch script has the variables of the job, but is one process.
  EXPECT_EQ(Options::from_environment(
                variables({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}}))
                .size,
            1);
}

TEST(Identity, OfAKubernetesIndexedJob) {
  const Options options =
      Options::from_environment(variables({{"JOB_COMPLETION_INDEX", "2"},
                                           {"MOTLEY_SIZE", "3"},
                                           {"MOTLEY_CONTROLLER", "rank0://train-0.train:29600"}}));
  EXPECT_EQ(options.rank, 2);
  EXPECT_EQ(options.controller, "rank0://train-0.train:29600");
  // Without a size its processes have nothing to do with each other.
  EXPECT_EQ(Options::from_environment(variables({{"JOB_COMPLETION_INDEX", "2"}})).size, 1);
}

TEST(Identity, TheInnermostSchedulerWins) {
  auto both = kSlurm;
  both.insert(kOpenMpi.begin(), kOpenMpi.end());
  EXPECT_EQ(identity_from(variables(both))->scheduler, "Open MPI");
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(identity_from(variables(both))->scheduler, "torchrun");
}

TEST(Identity, OurOwnVariablesOverruleIt) {
  auto own = kSlurm;
  own["MOTLEY_RANK"] = "1";
  own["MOTLEY_SIZE"] = "2";
  own["MOTLEY_CONTROLLER"] = "tcp://10.0.0.1:4000";
  const Options options = Options::from_environment(variables(own));
  EXPECT_EQ(options.rank, 1);
  EXPECT_EQ(options.size, 2);
  EXPECT_EQ(options.token, "");
  auto alone = kSlurm;
  alone["MOTLEY_SIZE"] = "1";
  EXPECT_EQ(Options::from_environment(variables(alone)).rank, 0);
}

TEST(Identity, ContradictionsAreNamed) {
  auto other_size = kSlurm;
  other_size["MOTLEY_SIZE"] = "4";
  EXPECT_THAT(
      message_of([&] { Options::from_environment(variables(other_size)); }, ErrorCode::kInvalid),
      testing::AllOf(HasSubstr("Slurm"), HasSubstr("4"), HasSubstr("8")));
  auto bad_rank = kTorchrun;
  bad_rank["RANK"] = "4";
  EXPECT_THAT(
      message_of([&] { Options::from_environment(variables(bad_rank)); }, ErrorCode::kInvalid),
      HasSubstr("RANK is \"4\""));
  auto two_hosts = kOpenMpi;
  two_hosts["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_THAT(
      message_of([&] { Options::from_environment(variables(two_hosts)); }, ErrorCode::kInvalid),
      testing::AllOf(HasSubstr("MOTLEY_CONTROLLER"), HasSubstr("Open MPI")));
}

TEST(Identity, TheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[003-007,012],login"), "node003");
  EXPECT_EQ(first_host("r[1,3]n4-ib,x"), "r1n4-ib");
  EXPECT_EQ(first_host("node[5]"), "node5");
  EXPECT_EQ(first_host(""), "");
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
  EXPECT_THAT(message_of([&] { chosen("10.1.0.0/33"); }, ErrorCode::kInvalid),
              HasSubstr("10.1.0.0/33"));
}

class TemporaryPath {
 public:
  TemporaryPath() {
    std::string folder = std::filesystem::temp_directory_path() / "motley-meeting-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) throw_errno("make folder " + folder);
    folder_ = folder;
  }
  ~TemporaryPath() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string operator()() const { return folder_ / "job"; }

 private:
  std::filesystem::path folder_;
};

TEST(MeetingFile, IsReadAsItWasWritten) {
  const TemporaryPath path;
  EXPECT_FALSE(read_meeting_file(path()));
  write_meeting_file(path(), {.token = "secret", .addresses = {"tcp://10.0.0.1:1", "tcp://a:2"}});
  const auto place = read_meeting_file(path());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->token, "secret");
  EXPECT_THAT(place->addresses, testing::ElementsAre("tcp://10.0.0.1:1", "tcp://a:2"));
  EXPECT_EQ(std::filesystem::status(path()).permissions() & std::filesystem::perms::others_all,
            std::filesystem::perms::none);
  std::ofstream(path()) << "something else\n";
  EXPECT_THAT(message_of([&] { read_meeting_file(path()); }, ErrorCode::kInvalid),
              HasSubstr(path()));
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
  const TemporaryPath path;
  write_meeting_file(path(), {.token = "old", .addresses = {"tcp://127.0.0.1:1"}});
  Options options;
  options.controller = "file:" + path();
  run_job(3, options, reduce);
  EXPECT_FALSE(std::filesystem::exists(path())) << "rank 0 takes it away";
}

// Rank 0 is done first, but the others find the controller until they are done, too.
TEST(Bootstrap, TheControllerOutlivesTheLoopOfRankZero) {
  const TemporaryPath path;
  Options options;
  options.controller = "file:" + path();
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
TEST(Bootstrap, APortInUseIsNamed) {
  const ControllerServer other({.bind = "tcp://0.0.0.0:0", .size = 1});
  const int port = RendezvousUrl::parse(other.address()).endpoint.port;
  Options options;
  options.size = 2;
  options.controller = "rank0://127.0.0.1:" + std::to_string(port);
  EXPECT_THAT(message_of([&] { Communicator::join(options); }, ErrorCode::kIo),
              testing::AllOf(HasSubstr(std::to_string(port)), HasSubstr("in use")));
}

// Scenario 18: of the ports that may be used, the first free one is; if all are taken, the error
// names them.
TEST(Bootstrap, TakesAPortInTheRangeOrNamesTheRange) {
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
TEST(Bootstrap, ANameThatResolvesToLoopbackWillDo) {
  Options options;
  options.controller = "rank0://localhost:" + std::to_string(free_port());
  options.token = "secret";
  run_job(2, options, reduce);
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

TEST(Bootstrap, TellsTheLogWhatItDoes) {
  const TemporaryPath path;
  std::mutex mutex;
  std::string text;
  Options options;
  options.controller = "file:" + path();
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
