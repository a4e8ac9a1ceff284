#include "comm/topology/structure.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <memory>

namespace motley {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const noexcept { hwloc_topology_destroy(topology); }
};
using Tree = std::unique_ptr<hwloc_topology, Destroy>;

Tree load() {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) return nullptr;
  Tree tree(topology);
  return hwloc_topology_load(topology) == 0 ? std::move(tree) : nullptr;
}

int count(const Tree& tree, hwloc_obj_type_t type) {
  return std::max(1, hwloc_get_nbobjs_by_type(tree.get(), type));
}

std::size_t cache_bytes(const Tree& tree, hwloc_obj_type_t type) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(tree.get(), type, 0);
  return cache == nullptr ? 0 : static_cast<std::size_t>(cache->attr->cache.size);
}

// The one NUMA node that holds all cores on which this process may run, or -1.
int own_node(const Tree& tree) {
  const std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)> cores(hwloc_bitmap_alloc(),
                                                                            hwloc_bitmap_free);
  if (cores == nullptr || hwloc_get_cpubind(tree.get(), cores.get(), HWLOC_CPUBIND_PROCESS) != 0)
    return -1;
  for (int i = 0; i < count(tree, HWLOC_OBJ_NUMANODE); ++i) {
    const hwloc_obj_t node =
        hwloc_get_obj_by_type(tree.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    if (node != nullptr && hwloc_bitmap_isincluded(cores.get(), node->cpuset) != 0) return i;
  }
  return -1;
}

}  // namespace

void find_structure(Machine& machine) {
  const Tree tree = load();
  if (tree == nullptr) {
    machine.source = "the operating system; hwloc cannot read the structure of this machine";
    return;
  }
  machine.hardware_threads = count(tree, HWLOC_OBJ_PU);
  machine.physical_cores = count(tree, HWLOC_OBJ_CORE);
  machine.sockets = count(tree, HWLOC_OBJ_PACKAGE);
  machine.numa_nodes = count(tree, HWLOC_OBJ_NUMANODE);
  machine.numa_node = own_node(tree);
  machine.l2_bytes = cache_bytes(tree, HWLOC_OBJ_L2CACHE);
  machine.l3_bytes = cache_bytes(tree, HWLOC_OBJ_L3CACHE);
  const unsigned version = hwloc_get_api_version();
  machine.source =
      fmt::format("hwloc {}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff);
}

}  // namespace motley
