#include "comm/transport/shm_limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

#include "comm/topology/processor_share.h"

namespace motley {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kLeastHeap = 64 << 20;
constexpr std::size_t kAddressSpace = std::size_t{1} << 46;  // what all heaps may take of it

std::size_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kAddressSpace;
  return limit.rlim_cur;
}

}  // namespace

std::string allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "1";
  std::string cores;
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) cores += CPU_ISSET(i, &set) ? '1' : '0';
  return cores.substr(0, cores.rfind('1') + 1);
}

int usable_cores(const std::vector<std::string>& allowed) {
  std::string any;
  for (const std::string& cores : allowed) {
    if (cores.size() > any.size()) any.resize(cores.size(), '0');
    for (std::size_t i = 0; i < cores.size(); ++i) any[i] = std::max(any[i], cores[i]);
  }
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const double share = std::ceil(processor_share(read("/proc/self/cgroup"), read));
  const auto count = static_cast<double>(std::count(any.begin(), any.end(), '1'));
  return std::max(1, static_cast<int>(std::min(share, count)));
}

std::size_t usable_heap_bytes(int ranks) {
  const auto pages = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES)));
  const std::size_t memory = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t address_space =
      std::min(kAddressSpace, limit_of(RLIMIT_AS) / 2) / static_cast<std::size_t>(ranks);
  const std::size_t bytes = std::min({memory, address_space, limit_of(RLIMIT_FSIZE) / 2});
  return bytes < kLeastHeap ? 0 : bytes / kHugePage * kHugePage;
}

}  // namespace motley
