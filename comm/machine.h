// comm/machine.h: the machine that this process runs on, as far as the operating system shows it.
//
//   const Machine machine = Machine::discover();   // some milliseconds; once at start
//   std::fputs(machine.to_text().c_str(), stdout);
#pragma once

#include <cstddef>
#include <string>

namespace motley {

struct Machine {
  int cores = 1;             // hardware threads that this process may keep busy: its affinity mask,
                             // and its cgroup's quota of processor time, rounded up
  int first_core = 0;        // the lowest number in the affinity mask
  int hardware_threads = 1;  // of the machine
  int physical_cores = 1;
  int sockets = 1;
  int numa_nodes = 1;
  int numa_node = -1;  // all cores of this process are in this one; -1: in several, or unknown
  std::size_t l2_bytes = 0;  // of one cache; 0: unknown
  std::size_t l3_bytes = 0;
  std::size_t memory_bytes = 0;
  std::string source;  // "hwloc 2.9.0", or what is unknown without it

  static Machine discover();
  // One line per fact, and where it is from.
  std::string to_text() const;
};

}  // namespace motley
