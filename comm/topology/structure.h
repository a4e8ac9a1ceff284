// comm/topology/structure.h: what hwloc knows of the machine, where hwloc is in the build.
#pragma once

#include "comm/machine.h"

namespace motley {

// Fills in sockets, cores, NUMA nodes, caches and `source`; leaves alone what is not known.
void find_structure(Machine& machine);

}  // namespace motley
