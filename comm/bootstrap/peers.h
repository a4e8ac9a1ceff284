// comm/bootstrap/peers.h: what the ranks of a job tell each other when they meet.
#pragma once

#include <string>
#include <vector>

#include "comm/bootstrap/interface.h"
#include "comm/control/client.h"
#include "comm/transport/factory.h"

namespace motley {

struct Peer {
  int pid = 0;
  // Equal for two ranks exactly if they can share memory and see each other's pids.
  std::string host;
  // Its addresses in the network by which it reaches the controller, in text; empty if that runs on
  // its own host and the user has not named a network.
  std::vector<std::string> addresses;
};

// Announces this process and learns where the others are, by rank. Throws kTimeout, naming the
// missing; kPeerLost, naming a rank that died meanwhile.
std::vector<Peer> meet_peers(ControlClient& control, const Options& options, TimePoint deadline);

// For each rank the number of its host; hosts are numbered in order of their lowest rank.
std::vector<int> number_hosts(const std::vector<Peer>& peers);

// The network by which this rank talks to ranks on other hosts, the same family on all ranks.
// Throws kUnavailable, naming ranks, if there is none.
DataNetwork choose_network(const TransportSetup& setup, const std::vector<Peer>& peers);

}  // namespace motley
