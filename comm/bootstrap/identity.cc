#include "comm/bootstrap/identity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>

#include "comm/error.h"

namespace motley {
namespace {

// Below the ports that the kernel hands out by itself (32768 and up, as it is set by default).
constexpr int kFirstPort = 20'000;
constexpr int kPorts = 10'000;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // An empty variable counts as not set.
  bool has(const char* variable) const { return *text(variable) != '\0'; }
  const char* text(const char* variable) const {
    const char* const value = environment_(variable);
    return value != nullptr ? value : "";
  }
  std::int64_t number(const char* variable, std::int64_t low, std::int64_t high) const {
    const std::string_view value = text(variable);
    std::int64_t number = 0;
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), number);
    if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || number < low ||
        number > high) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("options: {} is \"{}\", where its scheduler puts a whole number in "
                              "[{}, {}]. Set MOTLEY_RANK and MOTLEY_SIZE to overrule it.",
                              variable, value, low, high));
    }
    return number;
  }
  // Reads rank and size.
  Identity seat(const char* scheduler, const char* rank, const char* size) const {
    Identity identity{.scheduler = scheduler};
    identity.size = static_cast<int>(number(size, 1, Options::kMaxRanks));
    identity.rank = static_cast<int>(number(rank, 0, identity.size - 1));
    return identity;
  }
  // In a file that all processes of one host and user see.
  std::string local_file(const Identity& identity) const {
    return fmt::format("file:{}/motley-{}-{}", has("TMPDIR") ? text("TMPDIR") : "/tmp", getuid(),
                       identity.job);
  }

 private:
  const Environment& environment_;
};

// torchrun's own store listens at MASTER_PORT, so the controller takes the port after it.
Identity torchrun(const Reader& in) {
  Identity identity = in.seat("torchrun", "RANK", "WORLD_SIZE");
  const std::int64_t port = in.number("MASTER_PORT", 1, 65534);
  identity.controller = fmt::format("rank0://{}:{}", in.text("MASTER_ADDR"), port + 1);
  identity.job = fmt::format("torchrun-{}-{}-{}", in.text("TORCHELASTIC_RUN_ID"),
                             in.text("TORCHELASTIC_RESTART_COUNT"), port);
  return identity;
}

// Neither Open MPI nor PMI tells a rank where rank 0 is; on one host a file will do.
Identity open_mpi(const Reader& in) {
  Identity identity = in.seat("Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  identity.job =
      fmt::format("openmpi-{}", in.has("PMIX_NAMESPACE") ? in.text("PMIX_NAMESPACE")
                                                         : in.text("OMPI_MCA_ess_base_jobid"));
  if (in.has("OMPI_COMM_WORLD_LOCAL_SIZE") &&
      in.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, identity.size) == identity.size) {
    identity.controller = in.local_file(identity);
  }
  return identity;
}

// The ranks of one host are children of one proxy, which serves one job.
Identity pmi(const Reader& in) {
  Identity identity = in.seat("PMI", "PMI_RANK", "PMI_SIZE");
  identity.job = fmt::format("pmi-{}", getppid());
  if (in.has("MPI_LOCALNRANKS") &&
      in.number("MPI_LOCALNRANKS", 1, identity.size) == identity.size) {
    identity.controller = in.local_file(identity);
  }
  return identity;
}

Identity slurm(const Reader& in) {
  Identity identity = in.seat("Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS");
  const std::int64_t job = in.number("SLURM_JOB_ID", 0, UINT32_MAX);
  const std::int64_t step = in.number("SLURM_STEP_ID", 0, UINT32_MAX);  // interactive: near the end
  identity.job = fmt::format("slurm-{}.{}", job, step);
  identity.controller = fmt::format("rank0://{}:{}", first_host(in.text("SLURM_STEP_NODELIST")),
                                    kFirstPort + (job * 16 + step) % kPorts);
  return identity;
}

Identity kubernetes(const Reader& in) {
  return in.seat("Kubernetes", "JOB_COMPLETION_INDEX", "MOTLEY_SIZE");
}

// Whether the PMI that a rank finds is srun's own (--mpi=pmi2): then both count alike, and Slurm's
// variables say more.
bool srun_speaks_pmi(const Reader& in) {
  const auto alike = [&](const char* a, const char* b) {
    return std::string_view(in.text(a)) == in.text(b);
  };
  return alike("PMI_RANK", "SLURM_PROCID") && alike("PMI_SIZE", "SLURM_STEP_NUM_TASKS");
}

}  // namespace

// The order is that of nesting: torchrun and mpirun are often started by srun, whose variables
// their processes then find as well.
std::optional<Identity> identity_from(const Environment& environment) {
  const Reader in(environment);
  if (in.has("RANK") && in.has("WORLD_SIZE") && in.has("MASTER_ADDR") && in.has("MASTER_PORT")) {
    return torchrun(in);
  }
  if (in.has("OMPI_COMM_WORLD_RANK") && in.has("OMPI_COMM_WORLD_SIZE")) return open_mpi(in);
  if (in.has("PMI_RANK") && in.has("PMI_SIZE") && !srun_speaks_pmi(in)) return pmi(in);
  if (in.has("SLURM_PROCID") && in.has("SLURM_STEP_NUM_TASKS")) return slurm(in);
  if (in.has("JOB_COMPLETION_INDEX") && in.has("MOTLEY_SIZE")) return kubernetes(in);
  return std::nullopt;
}

std::string first_host(std::string_view hosts) {
  const std::size_t open = hosts.find_first_of("[,");
  std::string first(hosts.substr(0, open));
  if (open == hosts.npos || hosts[open] == ',') return first;
  const std::size_t close = hosts.find(']', open);
  first += hosts.substr(open + 1, hosts.find_first_of("-,]", open) - open - 1);
  if (close != hosts.npos) {
    first += hosts.substr(close + 1, hosts.find(',', close) - close - 1);
  }
  return first;
}

}  // namespace motley
