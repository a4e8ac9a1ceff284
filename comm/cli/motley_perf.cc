// motley-perf: how long collectives take, in the columns of nccl-tests.
//
//   motley-perf -n 4 -b 4 -e 256M --places in
//   motley-run -n 4 -- motley-perf --transport ucx --json ucx.jsonl
//
// Started by motley-run (or with the MOTLEY_ variables set) it is one rank of the job. With -n it
// starts the ranks itself: by motley-run, or as threads of its own with --transport inproc.
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "comm/cli/perf/flags.h"
#include "comm/cli/perf/model.h"
#include "comm/cli/perf/motley_subject.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/run.h"
#include "comm/cli/perf/versus.h"
#include "comm/communicator.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/local.h"
#include "comm/status_signal.h"

DEFINE_int32(n, 0, "start so many ranks on this host; 0: be the rank that the environment names");
DEFINE_string(transport, "",
              "auto, shm, ucx or inproc (threads; with -n); empty: MOTLEY_TRANSPORT");
DEFINE_string(algorithm, "",
              "names (comm/README.md lists them), auto, or all; empty: MOTLEY_ALGORITHM");

DEFINE_bool(explain, false, "say which algorithm each call takes, at what price; measure nothing");
DEFINE_bool(model, false, "measure every algorithm and say how well the cost model tells them");
DEFINE_bool(versus, false, "compare with Open MPI, MPICH and Gloo in turns, where they are there");
DEFINE_string(ranks, "2,4,8", "with --versus and --model: numbers of ranks");
DEFINE_int32(rounds, 3, "how often each is run, with --versus; with --model 5 unless set");
DEFINE_string(peers, "", "with --versus: folder of the peers' programs; empty: as built");

namespace motley::perf {
namespace {

constexpr const char* kUsage =
    "motley-perf measures collectives, each over a range of sizes.\n"
    "  motley-perf -n 4 -b 4 -e 256M          four processes on this host\n"
    "  motley-run -n 4 -- motley-perf         the same\n"
    "  motley-perf --versus --cap 0.5         beside Open MPI, MPICH and Gloo, with ratios\n"
    "Exit codes: 0, 1 when a call failed or a result was wrong, 2 for a wrong value of a flag.";

// What is known of the machines, then one table for each collective and size.
void explain_cells(Communicator& comm, Plan plan) {
  const MotleySubject subject(comm);
  plan.places.resize(1);
  plan.buffers.resize(1);
  plan.algorithms = {"auto"};
  if (comm.rank() != 0) return;
  fmt::print("{}\n", comm.topology().to_text());
  for (const Cell& cell : cells(plan, comm.size())) fmt::print("{}\n", subject.explanation(cell));
}

// Returns the number of cells with wrong elements, as rank 0 knows it.
int measure_rank(Communicator& comm, const Plan& plan, const std::string& flags) {
  if (FLAGS_explain) {
    explain_cells(comm, plan);
    return 0;
  }
  // Ranks of a host may share devices; those that are numbered one after another do not.
  std::optional<UseDevice> device;
  if (plan.buffers == std::vector{Buffers::kDevice}) device.emplace(comm.rank() % device_count());
  MotleySubject subject(comm);
  if (comm.rank() != 0) {
    run(subject, plan, comm.clock(), nullptr);
    return 0;
  }
  Report report({.program = "motley-perf",
                 .library = subject.library(),
                 .commit = commit_text(),
                 .ranks = comm.size(),
                 .transport = comm.options().transport,
                 .flags = flags},
                json_path(), stdout);
  run(subject, plan, comm.clock(), &report);
  return report.wrong_cells();
}

std::filesystem::path path_of_self() { return std::filesystem::read_symlink("/proc/self/exe"); }

void check_rounds() {
  if (FLAGS_rounds >= 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("motley-perf: --rounds is {}. Use 1 or more.", FLAGS_rounds));
}

void set_default(const char* flag, const char* value) {
  gflags::SetCommandLineOptionWithMode(flag, value, gflags::SET_FLAGS_DEFAULT);
}

// Prices are of use only for the machine that they are held against: its links are measured, unless
// the environment names another topology.
int run_model() {
  set_default("cap", "0.3");
  set_default("rounds", "5");
  const Plan plan = plan_from_flags();
  const std::string topology = Options::from_environment().topology;
  check_rounds();
  model(plan, {.ranks = parse_numbers("--ranks", FLAGS_ranks),
               .rounds = FLAGS_rounds,
               .self = path_of_self().string(),
               .transport = FLAGS_transport,
               .topology = topology == "auto" ? "probe" : topology});
  return 0;
}

// All of what Motley is asked to be compared in, unless flags say otherwise.
void set_versus_defaults() {
  set_default("e", "256M");
  set_default("cap", "0.5");
  set_default("collectives", "all_reduce,all_to_all");
}

int run_versus() {
  set_versus_defaults();
  const Plan plan = plan_from_flags();
  check_rounds();
  const std::filesystem::path self = path_of_self();
  const auto as_built = self.parent_path().parent_path() / "test/bench/peer";
  const int bad = versus(plan, {.ranks = parse_numbers("--ranks", FLAGS_ranks),
                                .rounds = FLAGS_rounds,
                                .self = self.string(),
                                .peers = FLAGS_peers.empty() ? as_built.string() : FLAGS_peers,
                                .json = json_path()});
  return bad == 0 ? 0 : 1;
}

// Becomes motley-run, which starts us again as `ranks` processes. Returns only by an exception.
[[noreturn]] void start_ranks(int ranks, const std::vector<std::string>& arguments) {
  const std::filesystem::path self = path_of_self();
  std::vector<std::string> words = {"motley-run", "-n", std::to_string(ranks),
                                    "--plain",    "--", self.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  // Beside us as installed, in our sibling's folder as built, or in PATH.
  for (const auto& folder : {self.parent_path(), self.parent_path().parent_path() / "runtime"}) {
    execv((folder / "motley-run").c_str(), pointers.data());
  }
  execvp("motley-run", pointers.data());
  throw_errno(fmt::format("motley-perf: run motley-run, which is sought beside {} and in PATH",
                          self.string()));
}

int run_main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  parse_command_line(argc, argv, kUsage);  // which moves the words about
  const std::string flags = fmt::format("{}", fmt::join(arguments, " "));
  if (FLAGS_versus) return run_versus();
  if (FLAGS_model) return run_model();
  Plan plan = plan_from_flags();
  Options options = Options::from_environment();
  plan.algorithms =
      parse_algorithms(FLAGS_algorithm.empty() ? options.algorithm : FLAGS_algorithm, plan.kinds);
  if (!FLAGS_transport.empty()) options.transport = FLAGS_transport;
  if (FLAGS_n < 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-perf: -n is {}. Start 1 rank or more.", FLAGS_n));
  }
  if (FLAGS_n > 0 && options.size > 1 && FLAGS_n != options.size) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("motley-perf: -n asks for {} ranks, but MOTLEY_SIZE says that this is one "
                    "of {}. Leave one of them out.",
                    FLAGS_n, options.size));
  }
  int wrong = 0;
  if (options.transport == "inproc") {
    run_local(
        FLAGS_n > 0 ? FLAGS_n : 1,
        [&](Communicator& comm) {
          const int found = measure_rank(comm, plan, flags);
          if (comm.rank() == 0) wrong = found;
        },
        options);
  } else if (FLAGS_n > options.size) {
    start_ranks(FLAGS_n, arguments);
  } else {
    Communicator comm = Communicator::join(options);
    const StatusSignal status(comm,
                              [](const std::string& text) { fmt::print(stderr, "{}", text); });
    wrong = measure_rank(comm, plan, flags);
  }
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace motley::perf

int main(int argc, char** argv) {
  constexpr int kWrongUse = 2;
  try {
    return motley::perf::run_main(argc, argv);
  } catch (const motley::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.code() == motley::ErrorCode::kInvalid ? kWrongUse : 1;
  } catch (const std::exception& error) {  // such as no memory for the largest size
    fmt::print(stderr, "motley-perf: {}\n", error.what());
    return 1;
  }
}
