#include "comm/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "comm/topology/processor_share.h"
#include "comm/topology/structure.h"

namespace motley {
namespace {

struct Affinity {
  int cores = 1;
  int first = 0;
};

// Of this thread; the mask is as long as the kernel's, whatever that is.
Affinity affinity() {
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    Affinity found{.cores = 0};
    if (::sched_getaffinity(0, bytes, set) == 0) {
      found.cores = CPU_COUNT_S(bytes, set);
      while (found.cores > 0 && !CPU_ISSET_S(static_cast<std::size_t>(found.first), bytes, set))
        ++found.first;
    }
    CPU_FREE(set);
    if (found.cores > 0) return found;
  }
  return {};
}

std::string read_file(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string mebibytes(std::size_t bytes) {
  return bytes == 0 ? "unknown" : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

Machine Machine::discover() {
  Machine machine;
  const auto configured = [](int name) { return std::max(1L, ::sysconf(name)); };
  machine.hardware_threads = static_cast<int>(configured(_SC_NPROCESSORS_ONLN));
  machine.physical_cores = machine.hardware_threads;
  machine.memory_bytes = static_cast<std::size_t>(configured(_SC_PHYS_PAGES)) *
                         static_cast<std::size_t>(configured(_SC_PAGESIZE));
  find_structure(machine);
  const double share = processor_share(read_file("/proc/self/cgroup"), read_file);
  const Affinity mask = affinity();
  machine.first_core = mask.first;
  machine.cores =
      static_cast<int>(std::clamp(std::ceil(share), 1.0, static_cast<double>(mask.cores)));
  return machine;
}

std::string Machine::to_text() const {
  return fmt::format(
      "cores for this process  {} of {} hardware threads ({} cores, {} sockets, {} NUMA nodes)\n"
      "NUMA node               {}\n"
      "caches                  L2 {}, L3 {}\n"
      "memory                  {}\n"
      "known from              {}\n",
      cores, hardware_threads, physical_cores, sockets, numa_nodes,
      numa_node < 0 ? "not bound to one" : std::to_string(numa_node), mebibytes(l2_bytes),
      mebibytes(l3_bytes), mebibytes(memory_bytes), source);
}

}  // namespace motley
