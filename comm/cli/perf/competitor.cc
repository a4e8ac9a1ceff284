#include "comm/cli/perf/competitor.h"

#include <fmt/format.h>
#include <unistd.h>

#include "comm/cli/perf/machine.h"

namespace motley::perf {
namespace {

using Words = std::vector<std::string>;

// With these glibc's malloc neither returns memory to the system nor maps large blocks apart.
const std::pair<std::string, std::string> kKeepHeap[] = {{"MALLOC_MMAP_THRESHOLD_", "4294967296"},
                                                         {"MALLOC_TRIM_THRESHOLD_", "4294967296"},
                                                         {"MALLOC_TOP_PAD_", "536870912"}};

void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

// Ranks that have a core each are bound to it; more of them are not, and yield where they can.
bool fits(int ranks) { return ranks <= usable_cores(); }

Words openmpi(int ranks, Heap heap, bool over_ucx) {
  Words words = {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to"};
  append(words, fits(ranks) ? Words{"core"} : Words{"none", "--mca", "mpi_yield_when_idle", "1"});
  if (over_ucx) {
    append(words, {"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
                   "any", "-x", "UCX_TLS=posix,cma,self"});
  }
  if (heap == Heap::kKept) {
    for (const auto& [name, value] : kKeepHeap) append(words, {"-x", name + "=" + value});
  }
  append(words, {"-np", std::to_string(ranks)});
  return words;
}

Words mpich(int ranks, Heap heap) {
  Words words = {"mpirun.mpich"};
  if (fits(ranks)) append(words, {"-bind-to", "core"});
  if (heap == Heap::kKept) {
    for (const auto& [name, value] : kKeepHeap) append(words, {"-genv", name, value});
  }
  append(words, {"-np", std::to_string(ranks)});
  return words;
}

Competitor motley(const std::string& self, Buffers buffers) {
  return {.name = fmt::format("Motley {}", name(buffers)),
          .ours = true,
          .buffers = buffers,
          .commands = [=](int ranks, const Words& arguments, const std::string&) {
            Words words = {self, "-n", std::to_string(ranks), "--buffers", name(buffers)};
            append(words, arguments);
            return std::vector<Command>{{.words = words}};
          }};
}

Competitor mpi(const std::string& name, Heap heap, const std::string& program,
               const std::function<Words(int)>& launcher) {
  return {.name = name,
          .heap = heap,
          .commands = [=](int ranks, const Words& arguments, const std::string&) {
            Words words = launcher(ranks);
            append(words, {program});
            append(words, arguments);
            return std::vector<Command>{{.words = words}};
          }};
}

Competitor gloo(const std::string& name, Heap heap, const std::string& program) {
  return {.name = name,
          .heap = heap,
          .commands = [=](int ranks, const Words& arguments, const std::string& folder) {
            std::vector<Command> commands;
            for (int rank = 0; rank < ranks; ++rank) {
              Command command{{program, "--rank", std::to_string(rank), "--size",
                               std::to_string(ranks), "--store", folder}};
              append(command.words, arguments);
              if (heap == Heap::kKept) {
                command.environment.assign(std::begin(kKeepHeap), std::end(kKeepHeap));
              }
              commands.push_back(std::move(command));
            }
            return commands;
          }};
}

// Why `program`, started by `launcher`, cannot be run; empty if it can.
std::string why_missing(const std::string& program, const std::string& launcher) {
  if (::access(program.c_str(), X_OK) != 0) {
    return fmt::format("{} has not been built: its library was not found", program);
  }
  if (launcher.empty()) return "";
  return run_all({{.words = {launcher, "--version"}}}, seconds(20));
}

}  // namespace

std::vector<Competitor> all_competitors(const std::string& self, const std::string& peers) {
  std::vector<Competitor> all = {motley(self, Buffers::kPrivate),
                                 motley(self, Buffers::kAllocated)};
  const std::string openmpi_peer = peers + "/openmpi_peer";
  const std::string mpich_peer = peers + "/mpich_peer";
  const std::string gloo_peer = peers + "/gloo_peer";
  const std::string no_openmpi = why_missing(openmpi_peer, "mpirun.openmpi");
  const std::string no_mpich = why_missing(mpich_peer, "mpirun.mpich");
  const std::string no_gloo = why_missing(gloo_peer, "");
  for (const Heap heap : {Heap::kDefault, Heap::kKept}) {
    const std::string suffix = heap == Heap::kKept ? ", heap kept" : "";
    for (const bool over_ucx : {false, true}) {
      all.push_back(mpi((over_ucx ? "Open MPI ucx" : "Open MPI") + suffix, heap, openmpi_peer,
                        [=](int ranks) { return openmpi(ranks, heap, over_ucx); }));
      all.back().missing = no_openmpi;
    }
    all.push_back(
        mpi("MPICH" + suffix, heap, mpich_peer, [=](int ranks) { return mpich(ranks, heap); }));
    all.back().missing = no_mpich;
    all.push_back(gloo("Gloo" + suffix, heap, gloo_peer));
    all.back().missing = no_gloo;
  }
  return all;
}

}  // namespace motley::perf
