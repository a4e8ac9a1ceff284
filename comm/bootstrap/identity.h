// comm/bootstrap/identity.h: who this process is, as the scheduler that started it says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "comm/options.h"

namespace motley {

struct Identity {
  std::string scheduler;  // "torchrun", …, for messages
  int rank = 0;
  int size = 1;
  std::string controller;  // as Options::controller; empty where the scheduler does not say enough
  std::string job;         // differs between the jobs of a host and a user; no secret
};

// The innermost of the schedulers that left a complete description in `environment`: torchrun,
// Open MPI, PMI (MPICH and its relatives), Slurm (steps started by srun), Kubernetes (an indexed
// job, whose size is MOTLEY_SIZE). Throws kInvalid, naming variable and value, on one that
// cannot be true.
std::optional<Identity> identity_from(const Environment& environment);

// "node003" of "node[003-007,012],login1", as Slurm writes lists of hosts.
std::string first_host(std::string_view hosts);

}  // namespace motley
