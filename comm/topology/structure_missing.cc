#include "comm/topology/structure.h"

namespace motley {

void find_structure(Machine& machine) {
  machine.source =
      "the operating system; sockets, NUMA nodes and caches are unknown, as hwloc is not in this "
      "build";
}

}  // namespace motley
