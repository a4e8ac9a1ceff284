// Communicator::join: finds the other ranks of the job and connects to them.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "comm/bootstrap/connect.h"
#include "comm/bootstrap/peers.h"
#include "comm/communicator.h"
#include "comm/control/peer_probe.h"
#include "comm/error.h"
#include "comm/topology/settle.h"
#include "comm/transport/composite.h"
#include "comm/transport/factory.h"
#include "comm/transport/inproc.h"
#include "comm/transport/rendezvous.h"

namespace motley {
namespace {

// What ranks publish while they join: nobody waits for the dead.
class JoiningStore final : public Store {
 public:
  explicit JoiningStore(ControlClient& control) : control_(control) {}
  void set(std::string_view key, std::string_view value) override { control_.set(key, value); }
  std::string get(std::string_view key, TimePoint deadline) override {
    return control_.get_from_living(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount) override {
    return control_.add(key, amount);
  }

 private:
  ControlClient& control_;
};

void check_arguments(const Options& options) {
  if (options.rank < 0 || options.rank >= options.size) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("join: rank {} is not in [0, {}), the ranks of the job.", options.rank,
                            options.size));
  }
  if (options.size > 1 && options.controller.empty()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("join: {} ranks need a controller. Start the program with motley-run, or "
                    "set MOTLEY_CONTROLLER.",
                    options.size));
  }
}

// Ranks of other hosts are asked whether they live while they are awaited or the controller is
// silent; a rank that cannot open a socket for it has the word of the controller only.
void watch_other_hosts(TransportSetup& setup, ControlClient& control) {
  std::unique_ptr<PeerProbe> probe;
  try {
    const IpAddress own = resolve(setup.network.address).at(0);
    probe = std::make_unique<PeerProbe>(setup.rank, own, PortRange::parse(setup.options.ports),
                                        setup.options.heartbeat);
  } catch (const Error& error) {
    setup.options.tell(
        LogLevel::kWarning,
        fmt::format("rank {} of {}: asks no ranks of other hosts whether they live: {}", setup.rank,
                    setup.size, error.what()));
  }
  const std::vector<std::string> addresses =
      exchange(setup, "probe", probe ? probe->address() : "");
  if (!probe) return;
  const auto host = [&](int rank) { return setup.hosts[static_cast<std::size_t>(rank)]; };
  for (int rank = 0; rank < setup.size; ++rank) {
    if (host(rank) == host(setup.rank)) continue;
    probe->add(rank, addresses[static_cast<std::size_t>(rank)]);
  }
  setup.awaited = std::make_shared<AwaitedPeers>();
  probe->ask_awaited(setup.awaited);
  control.watch_peers(std::move(probe));
}

std::unique_ptr<Transport> connect(TransportSetup setup, ControlClient& control,
                                   const std::vector<Peer>& peers,
                                   const std::vector<int>& host_of) {
  const bool direct = setup.options.ucx_device == "direct" && setup.options.transport == "auto";
  const std::string wanted = direct ? "ucx" : setup.options.transport;
  const int hosts = 1 + *std::max_element(host_of.begin(), host_of.end());
  const auto tell = [&](const std::string& how) {
    setup.options.tell(LogLevel::kInfo, fmt::format("rank {} of {}: {} hosts, joined by {}",
                                                    setup.rank, setup.size, hosts, how));
  };
  if (wanted == "shm" || (wanted == "auto" && hosts == 1)) {
    tell("shm");
    return make_shm_transport(setup);
  }
  if (wanted != "ucx" && wanted != "auto") {
    throw Error(ErrorCode::kInvalid,
                fmt::format("there is no transport '{}'. Use auto, shm or ucx.", wanted));
  }
  if (hosts > 1 || !setup.options.interface.empty()) setup.network = choose_network(setup, peers);
  if (hosts > 1) {
    setup.hosts = host_of;
    watch_other_hosts(setup, control);
  }
  const std::string& device = setup.network.device;
  tell(fmt::format("{} over {}", wanted == "auto" ? "shm inside and ucx" : "ucx",
                   device.empty() ? "any network" : device));
  return wanted == "auto" ? make_composite_transport(setup) : make_ucx_transport(setup);
}

struct Seat {
  std::unique_ptr<Transport> transport;
  std::vector<int> host_of;  // by rank
};

Seat meet_and_connect(ControlClient& control, const Options& options, Clock& clock,
                      TimePoint deadline) {
  const std::vector<Peer> peers = meet_peers(control, options, deadline);
  for (int rank = 0; rank < options.size; ++rank) {
    const Peer& peer = peers[static_cast<std::size_t>(rank)];
    const bool here = peer.host == peers[static_cast<std::size_t>(options.rank)].host;
    if (here && rank != options.rank) control.watch_process(rank, peer.pid);
  }
  JoiningStore store(control);
  Seat seat{.transport = nullptr, .host_of = number_hosts(peers)};
  seat.transport =
      connect({.rank = options.rank,
               .size = options.size,
               .store = store,
               .name = "world",
               .clock = clock,
               .options = options,
               .deadline = deadline,
               .check = [&] { control.check_all_live("connecting to the other ranks"); }},
              control, peers, seat.host_of);
  return seat;
}

}  // namespace

Communicator Communicator::join(const Options& options) {
  Clock& clock = Clock::real();
  check_arguments(options);
  if (options.size == 1) return Communicator(InprocNetwork::single(), clock, options);
  const TimePoint deadline = clock.now() + options.join_timeout;
  std::unique_ptr<ControlClient> control = connect_to_job(options, clock, deadline);
  Seat seat;
  try {
    seat = meet_and_connect(*control, options, clock, deadline);
  } catch (const Error& error) {
    control->resign(fmt::format("it could not join: {}", error.what()));  // nobody shall wait
    throw;
  }
  Communicator comm(std::move(seat.transport), std::move(control), clock, options);
  comm.barrier({.timeout = options.join_timeout}).wait();
  settle_topology(comm, seat.host_of);
  if (options.nccl != "off") comm.use_nccl();
  return comm;
}

}  // namespace motley
