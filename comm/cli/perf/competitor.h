// The libraries that --versus runs, in every way that users may run them, as command lines.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/cli/perf/cell.h"
#include "comm/cli/perf/child.h"

namespace motley::perf {

// What memory a library gets for its temporaries.
enum class Heap : std::uint8_t {
  kDefault,
  kKept,  // malloc keeps what is freed, so that large temporaries cost no page faults
};

struct Competitor {
  std::string name;  // "Open MPI ucx, heap kept"
  bool ours = false;
  Buffers buffers = Buffers::kPrivate;
  Heap heap = Heap::kDefault;
  std::string missing;  // why it cannot be run here; empty if it can

  // The processes of one run with `ranks` ranks. `arguments`: motley-perf's flags for cells.
  // `folder`: empty, for the run alone.
  std::function<std::vector<Command>(int ranks, const std::vector<std::string>& arguments,
                                     const std::string& folder)>
      commands;
};

// Motley with private buffers and with allocated ones, then Open MPI over its own shared memory and
// over UCX, MPICH and Gloo, each with both heaps. `self`: path of motley-perf. `peers`: folder of
// the programs for the other libraries.
std::vector<Competitor> all_competitors(const std::string& self, const std::string& peers);

}  // namespace motley::perf
