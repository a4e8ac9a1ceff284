#include "comm/bootstrap/peers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "comm/bootstrap/rendezvous_url.h"
#include "comm/error.h"
#include "comm/transport/rendezvous.h"

namespace motley {
namespace {

constexpr Duration kMoment = seconds(1);  // for what the controller knows already

// The boot of the kernel and the pid namespace. Never the host's name, which need not be unique.
std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char link[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/ns/pid", link, sizeof link);
  return boot + "/" + (length > 0 ? std::string(link, static_cast<std::size_t>(length)) : "?");
}

// The device that leads to `target`, with all its addresses; none if `target` is this host.
std::vector<Interface> way_to(const IpAddress& target, const std::vector<Interface>& all) {
  const auto way = route_to(target, all);
  if (!way || way->address == target || way->address.is_loopback()) return {};
  return select_interfaces(all, way->name);
}

std::vector<Interface> way_to(const std::string& target, const std::vector<Interface>& all) {
  const std::vector<IpAddress> addresses = resolve(target);
  return addresses.empty() ? std::vector<Interface>() : way_to(addresses.front(), all);
}

// What this rank can say of its network before it knows the others.
std::vector<Interface> way_to_controller(const ControlClient& control, const Options& options) {
  const std::vector<Interface> all = interfaces();
  if (!options.interface.empty()) return select_interfaces(all, options.interface);
  return way_to(RendezvousUrl::parse(control.controller()).endpoint.host, all);
}

std::string to_text(const Peer& peer) {
  return fmt::format("{} {} {} {}", peer.pid, peer.addresses.size(), fmt::join(peer.addresses, " "),
                     peer.host);
}

Peer parse_peer(const std::string& text) {
  std::istringstream in(text);
  Peer peer;
  std::size_t count = 0;
  in >> peer.pid >> count;
  for (std::string address; peer.addresses.size() < count && in >> address;) {
    peer.addresses.push_back(address);
  }
  in >> std::ws;
  std::getline(in, peer.host);
  return peer;
}

// Once the wait for the others has timed out: throws, unless the last has come just now.
void throw_if_missing(ControlClient& control, const Options& options) {
  std::vector<int> missing;
  for (int rank = 0; rank < options.size; ++rank) {
    if (control.add(fmt::format("announced/{}", rank), 0) == 0) missing.push_back(rank);
  }
  if (missing.empty()) return;
  throw Error(ErrorCode::kTimeout,
              fmt::format("rank {} of {}: waited {:.1f} s for all ranks to join; missing: {}. "
                          "Check that they were started, or raise join_timeout.",
                          options.rank, options.size, to_seconds(options.join_timeout),
                          fmt::join(missing, ", ")),
              missing);
}

// This rank's device: where the controller is on this host, the way to a rank that is on another.
std::vector<Interface> own_way(const TransportSetup& setup, const std::vector<Peer>& peers) {
  const std::vector<Interface> all = interfaces();
  if (!setup.options.interface.empty()) return select_interfaces(all, setup.options.interface);
  const Peer& mine = peers[static_cast<std::size_t>(setup.rank)];
  if (!mine.addresses.empty()) {
    for (const Interface& it : all) {
      if (it.address.to_text() == mine.addresses.front()) return select_interfaces(all, it.name);
    }
  }
  for (const Peer& peer : peers) {
    if (peer.host == mine.host || peer.addresses.empty()) continue;
    const std::vector<Interface> way = way_to(peer.addresses.front(), all);
    if (!way.empty()) return way;
  }
  return {};
}

bool has_family(const std::vector<Interface>& way, bool v6) {
  return std::any_of(way.begin(), way.end(),
                     [&](const Interface& it) { return it.address.is_v6() == v6; });
}

}  // namespace

std::vector<Peer> meet_peers(ControlClient& control, const Options& options, TimePoint deadline) {
  Peer mine{.pid = ::getpid(), .host = options.host.empty() ? host_identity() : options.host};
  for (const Interface& it : way_to_controller(control, options)) {
    mine.addresses.push_back(it.address.to_text());
  }
  control.set(fmt::format("host/{}", options.rank), to_text(mine));
  control.add(fmt::format("announced/{}", options.rank), 1);
  std::vector<Peer> peers;
  for (TimePoint until = deadline; static_cast<int>(peers.size()) < options.size;) {
    try {
      const std::string key = fmt::format("host/{}", peers.size());
      peers.push_back(parse_peer(control.get_from_living(key, until)));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || until != deadline) throw;
      throw_if_missing(control, options);
      until = Clock::real().now() + kMoment;
    }
  }
  return peers;
}

std::vector<int> number_hosts(const std::vector<Peer>& peers) {
  std::map<std::string, int> numbers;
  std::vector<int> host_of;
  for (const Peer& peer : peers) {
    host_of.push_back(numbers.emplace(peer.host, static_cast<int>(numbers.size())).first->second);
  }
  return host_of;
}

DataNetwork choose_network(const TransportSetup& setup, const std::vector<Peer>& peers) {
  const std::vector<Interface> way = own_way(setup, peers);
  const std::string mine =
      fmt::format("{}{}{}", has_family(way, false) ? "4" : "", has_family(way, true) ? "6" : "",
                  way.empty() ? "" : " " + way.front().name);
  const std::vector<std::string> all = exchange(setup, "network", mine);
  for (const char family : {'4', '6'}) {
    const bool common = std::all_of(all.begin(), all.end(), [&](const std::string& ways) {
      return ways.substr(0, ways.find(' ')).find(family) != ways.npos;
    });
    if (!common) continue;
    const bool v6 = family == '6';
    const auto own = std::find_if(way.begin(), way.end(),
                                  [&](const Interface& it) { return it.address.is_v6() == v6; });
    return {.device = own->name, .address = own->address.to_text(), .v6 = v6};
  }
  std::string text;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const std::size_t blank = all[rank].find(' ');
    const std::string families = all[rank].substr(0, blank);
    text += fmt::format("{}rank {} has {}", rank == 0 ? "" : ", ", rank,
                        blank == all[rank].npos
                            ? "no way to another host"
                            : fmt::format("IPv{} on {}", fmt::join(families, " and IPv"),
                                          all[rank].substr(blank + 1)));
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("rank {} of {}: no network joins all ranks: {}. Give all hosts addresses "
                          "of one family, or set MOTLEY_IFACE to the network that joins them.",
                          setup.rank, setup.size, text));
}

}  // namespace motley
