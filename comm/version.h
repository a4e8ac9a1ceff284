// comm/version.h: what this build is and what it can do.
#pragma once

#include <string>

namespace motley {

// Version and commit in one line, then a line for each optional package (UCX, CUDA and others): its
// version, or "not in this build" and what is lost without it. What every program's --version
// prints:
//
//   0.1.0, commit 12a6487c0ffe
//   UCX 1.13.1
//   CUDA not in this build: no device code
//   NCCL not in this build: device memory always goes through the host
std::string version_text();

}  // namespace motley
