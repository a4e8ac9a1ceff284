// Communicator::join: finds the other ranks of the job and connects to them.
#include <fmt/format.h>
#include <unistd.h>

#include <climits>
#include <fstream>
#include <string>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/error.h"
#include "comm/transport/factory.h"
#include "comm/transport/inproc.h"

namespace motley {
namespace {

// Equal for two processes exactly if they can share memory and see each other's pids: the boot of
// the kernel and the pid namespace. Never the host's name, which need not be unique.
std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char link[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/ns/pid", link, sizeof link);
  return boot + "/" + (length > 0 ? std::string(link, static_cast<std::size_t>(length)) : "?");
}

struct Peer {
  std::string host;
  int pid = 0;
};

// The ranks that have not announced themselves, once the wait for the others has timed out.
std::vector<int> missing_ranks(ControlClient& control, int size) {
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank) {
    if (control.add(fmt::format("announced/{}", rank), 0) == 0) missing.push_back(rank);
  }
  return missing;
}

// Announces this process and learns where the others are. Throws kTimeout, naming the missing.
std::vector<Peer> meet(ControlClient& control, const Options& options, TimePoint deadline) {
  control.set(fmt::format("host/{}", options.rank),
              fmt::format("{} {}", ::getpid(), host_identity()));
  control.add(fmt::format("announced/{}", options.rank), 1);
  std::vector<Peer> peers;
  try {
    for (int rank = 0; rank < options.size; ++rank) {
      const std::string text = control.get(fmt::format("host/{}", rank), deadline);
      const std::size_t blank = text.find(' ');
      peers.push_back({text.substr(blank + 1), std::stoi(text.substr(0, blank))});
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) throw;
    const std::vector<int> missing = missing_ranks(control, options.size);
    throw Error(ErrorCode::kTimeout,
                fmt::format("rank {} of {}: waited {:.1f} s for all ranks to join; missing: {}. "
                            "Check that they were started, or raise join_timeout.",
                            options.rank, options.size, to_seconds(options.join_timeout),
                            fmt::join(missing, ", ")),
                missing);
  }
  return peers;
}

bool on_one_host(const std::vector<Peer>& peers) {
  for (const Peer& peer : peers) {
    if (peer.host != peers.front().host) return false;
  }
  return true;
}

std::unique_ptr<Transport> connect(const TransportSetup& setup, const std::vector<Peer>& peers) {
  const std::string& wanted = setup.options.transport;
  if (wanted == "ucx" || (wanted == "auto" && !on_one_host(peers)))
    return make_ucx_transport(setup);
  if (wanted == "shm" || wanted == "auto") return make_shm_transport(setup);
  throw Error(ErrorCode::kInvalid,
              fmt::format("there is no transport '{}'. Use auto, shm or ucx.", wanted));
}

}  // namespace

Communicator Communicator::join(const Options& options) {
  Clock& clock = Clock::real();
  if (options.rank < 0 || options.rank >= options.size) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("join: rank {} is not in [0, {}), the ranks of the job.", options.rank,
                            options.size));
  }
  if (options.size == 1) return Communicator(InprocNetwork::single(), clock, options);
  if (options.controller.empty()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("join: {} ranks need a controller. Start the program with motley-run, or "
                    "set MOTLEY_CONTROLLER.",
                    options.size));
  }
  const TimePoint deadline = clock.now() + options.join_timeout;
  std::unique_ptr<ControlClient> control = connect_control(options, clock);
  const std::vector<Peer> peers = meet(*control, options, deadline);
  for (int rank = 0; rank < options.size; ++rank) {
    const Peer& peer = peers[static_cast<std::size_t>(rank)];
    const bool here = peer.host == peers[static_cast<std::size_t>(options.rank)].host;
    if (here && rank != options.rank) control->watch_process(rank, peer.pid);
  }
  std::unique_ptr<Transport> transport = connect({.rank = options.rank,
                                                  .size = options.size,
                                                  .store = *control,
                                                  .name = "world",
                                                  .clock = clock,
                                                  .options = options,
                                                  .deadline = deadline},
                                                 peers);
  Communicator comm(std::move(transport), std::move(control), clock, options);
  comm.barrier({.timeout = options.join_timeout}).wait();
  return comm;
}

}  // namespace motley
