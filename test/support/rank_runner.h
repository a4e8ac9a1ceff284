// test/support/rank_runner.h: runs a test body as several ranks, on any transport.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace motley::test {

using RankBody = std::function<void(Communicator&)>;

// Ranks as threads over mailboxes.
void run_ranks(int size, const RankBody& body, const Options& = {});

// "inproc", "shm", "ucx" (ranks as threads), "ucx_staged" (the same, but device memory goes through
// the host), "hosts" (the same as if on two: shm inside and ucx
// between) or "sim" (ranks as fibers in virtual time).
void run_ranks_on(const std::string& transport, int size, const RankBody& body,
                  const Options& = {});

// The transports that this build can run, for INSTANTIATE_TEST_SUITE_P.
std::vector<std::string> transports();
// Whether "ucx", and what goes over it, is one of them.
bool ucx_is_built();

}  // namespace motley::test
