// What is discovered of this machine agrees with what the system says, and quotas are understood.
#include "comm/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <limits>
#include <map>
#include <string>
#include <thread>

#include "comm/topology/processor_share.h"
#include "comm/version.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

TEST(Machine, IsDiscovered) {
  const Machine machine = Machine::discover();
  EXPECT_GE(machine.cores, 1);
  EXPECT_LE(machine.cores, machine.hardware_threads);
  EXPECT_LE(machine.physical_cores, machine.hardware_threads);
  EXPECT_GE(machine.hardware_threads, static_cast<int>(std::thread::hardware_concurrency()));
  EXPECT_GE(machine.sockets, 1);
  EXPECT_LT(machine.numa_node, machine.numa_nodes);
  EXPECT_GT(machine.memory_bytes, std::size_t{64} << 20);
  EXPECT_FALSE(machine.source.empty());
  EXPECT_THAT(machine.to_text(), HasSubstr(machine.source));
  EXPECT_EQ(version_text().find("HWLOC not in this build") == std::string::npos,
            machine.source.starts_with("hwloc"));
}

// A thread bound to one core may keep one busy.
TEST(Machine, CountsTheCoresOfTheAffinityMask) {
  Machine machine;
  const int core = ::sched_getcpu();
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<unsigned>(core), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    machine = Machine::discover();
  }).join();
  EXPECT_EQ(machine.cores, 1);
  EXPECT_EQ(machine.first_core, core);
}

double share(const std::string& cgroups, const std::map<std::string, std::string>& files) {
  return processor_share(cgroups, [&](const std::string& path) {
    const auto found = files.find(path);
    return found == files.end() ? std::string() : found->second;
  });
}

constexpr double kAll = std::numeric_limits<double>::infinity();

TEST(ProcessorShare, OfVersion2IsTheLeastOfAllGroupsAbove) {
  const std::string cgroups = "0::/job/step\n";
  EXPECT_EQ(share(cgroups, {}), kAll);
  EXPECT_EQ(share(cgroups, {{"/sys/fs/cgroup/job/step/cpu.max", "max 100000\n"}}), kAll);
  EXPECT_EQ(share(cgroups, {{"/sys/fs/cgroup/job/step/cpu.max", "250000 100000\n"}}), 2.5);
  EXPECT_EQ(share(cgroups, {{"/sys/fs/cgroup/job/step/cpu.max", "250000 100000\n"},
                            {"/sys/fs/cgroup/job/cpu.max", "150000 100000\n"}}),
            1.5);
  EXPECT_EQ(share("0::/\n", {{"/sys/fs/cgroup/cpu.max", "50000 100000\n"}}), 0.5);
}

TEST(ProcessorShare, OfVersion1IsReadFromTwoFiles) {
  const std::string cgroups = "5:memory:/a\n4:cpuset:/b\n3:cpu,cpuacct:/docker/x\n0::/\n";
  const std::string folder = "/sys/fs/cgroup/cpu/docker/x";
  EXPECT_EQ(share(cgroups, {{folder + "/cpu.cfs_quota_us", "-1\n"},
                            {folder + "/cpu.cfs_period_us", "100000\n"}}),
            kAll);
  EXPECT_EQ(share(cgroups, {{folder + "/cpu.cfs_quota_us", "300000\n"},
                            {folder + "/cpu.cfs_period_us", "100000\n"}}),
            3);
}

TEST(ProcessorShare, OfWhatIsNoCgroupFileIsAll) {
  EXPECT_EQ(share("", {}), kAll);
  EXPECT_EQ(share("nonsense\n:\n", {{"/sys/fs/cgroup/cpu.max", "zero 0"}}), kAll);
}

}  // namespace
}  // namespace motley
