#include "comm/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "topology: " + what);
}

void check_speed(const std::string& what, double bytes_per_second) {
  if (std::isfinite(bytes_per_second) && bytes_per_second > 0) return;
  refuse(
      fmt::format("the {} is {} bytes/s. It must be positive and finite.", what, bytes_per_second));
}

void check_time(const std::string& what, Duration time) {
  if (time >= Duration::zero()) return;
  refuse(fmt::format("{} is {} ns. It must not be negative.", what, time.count()));
}

void check_link(const std::string& where, const Link& link) {
  check_speed("bandwidth " + where, link.bytes_per_second);
  check_time("the latency " + where, link.latency);
  check_time("the time per message " + where, link.per_message);
}

void check_host(const Host& host) {
  if (host.name.empty() || host.name.find_first_of(" \t\r\n#=") != std::string::npos) {
    refuse(fmt::format("a host is called \"{}\". Give it a name without blanks, '#' and '='.",
                       host.name));
  }
  if (host.ranks.empty())
    refuse(fmt::format("host {} has no ranks. Name at least one.", host.name));
  if (!std::is_sorted(host.ranks.begin(), host.ranks.end()))
    refuse(fmt::format("the ranks of host {} do not ascend. Sort them.", host.name));
  if (!host.socket.empty() && host.socket.size() != host.ranks.size()) {
    refuse(fmt::format("host {} has {} ranks, but {} sockets are given. Give one for each rank.",
                       host.name, host.ranks.size(), host.socket.size()));
  }
  for (const int socket : host.socket) {
    if (socket < 0) refuse(fmt::format("host {} has a socket {}.", host.name, socket));
  }
  if (host.cores < 0 || host.ports < 0) {
    refuse(fmt::format("host {} has {} cores and {} ports. Neither may be negative.", host.name,
                       host.cores, host.ports));
  }
  if (host.port_bytes_per_second != 0)
    check_speed("port speed of host " + host.name, host.port_bytes_per_second);
}

}  // namespace

Topology::Topology(std::vector<Host> hosts, const TopologyCosts& costs, std::vector<HostLink> links)
    : hosts_(std::move(hosts)), costs_(costs), links_(std::move(links)) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].name.empty()) hosts_[i].name = fmt::format("host{}", i);
  }
  check_hosts();
  check_links();
  check_link("within a host", costs.within);
  check_link("across sockets", costs.across);
  check_link("between hosts", costs.between);
  check_time("the time of a call", costs.per_call);
  check_time("the time of a turn", costs.per_turn);
  check_speed("speed of reduction", costs.reduce_bytes_per_second);
  check_speed("speed of copying", costs.copy_bytes_per_second);
  place_ranks();
}

void Topology::check_hosts() const {
  if (hosts_.empty()) refuse("it has no ranks. Name at least one.");
  std::set<std::string> names;
  std::set<int> ranks;
  for (const Host& host : hosts_) {
    check_host(host);
    if (!names.insert(host.name).second)
      refuse(fmt::format("two hosts are called {}. Names must differ.", host.name));
    for (const int rank : host.ranks) {
      if (!ranks.insert(rank).second)
        refuse(fmt::format("rank {} is named twice. It runs on one host.", rank));
    }
  }
  const int count = static_cast<int>(ranks.size());
  if (*ranks.begin() == 0 && *ranks.rbegin() == count - 1) return;
  int missing = 0;
  while (ranks.contains(missing)) ++missing;
  refuse(fmt::format("{} ranks from {} to {} are named, but not rank {}. Number them from 0.",
                     count, *ranks.begin(), *ranks.rbegin(), missing));
}

void Topology::check_links() const {
  std::set<std::pair<int, int>> pairs;
  const int count = static_cast<int>(hosts_.size());
  for (const HostLink& own : links_) {
    if (std::min(own.a, own.b) < 0 || std::max(own.a, own.b) >= count || own.a == own.b) {
      refuse(fmt::format("a link joins hosts {} and {} of {}. Name two different ones.", own.a,
                         own.b, count));
    }
    const std::string names =
        fmt::format("between hosts {} and {}", hosts_[static_cast<std::size_t>(own.a)].name,
                    hosts_[static_cast<std::size_t>(own.b)].name);
    if (!pairs.insert(std::minmax(own.a, own.b)).second)
      refuse(fmt::format("two links are given {}. Give one; it holds in both directions.", names));
    check_link(names, own.link);
  }
}

// Numbers what can be busy: an out and an in port for each rank, then cores, ports and links.
void Topology::place_ranks() {
  std::size_t count = 0;
  for (const Host& host : hosts_) count += host.ranks.size();
  seats_.resize(count);
  busy_things_ = 2 * static_cast<int>(count);
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    const Host& host = hosts_[h];
    const int first_port = busy_things_ + host.cores;
    for (std::size_t i = 0; i < host.ranks.size(); ++i) {
      Seat& seat = seats_[static_cast<std::size_t>(host.ranks[i])];
      seat.host = static_cast<int>(h);
      if (!host.socket.empty()) seat.socket = host.socket[i];
      if (host.cores > 0) seat.core = busy_things_ + static_cast<int>(i) % host.cores;
      if (host.ports > 0) seat.port = first_port + 2 * (static_cast<int>(i) % host.ports);
    }
    busy_things_ = first_port + 2 * host.ports;
  }
  for (std::size_t i = 0; i < links_.size(); ++i) {
    link_of_[std::minmax(links_[i].a, links_[i].b)] = static_cast<int>(i);
  }
  busy_things_ += 2 * static_cast<int>(links_.size());
}

Topology Topology::uniform(int ranks, const Link& link) {
  std::vector<int> host_of;
  for (int rank = 0; rank < ranks; ++rank) host_of.push_back(rank);
  return hosts(host_of, {.within = link, .between = link, .across = link});
}

Topology Topology::hosts(const std::vector<int>& host_of, const TopologyCosts& costs) {
  std::map<int, Host> by_number;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    if (host_of[rank] < 0)
      refuse(fmt::format("rank {} is on host {}. Number hosts from 0.", rank, host_of[rank]));
    by_number[host_of[rank]].ranks.push_back(static_cast<int>(rank));
  }
  std::vector<Host> hosts;
  for (auto& [number, host] : by_number) {
    host.name = fmt::format("host{}", number);
    hosts.push_back(std::move(host));
  }
  return Topology(std::move(hosts), costs);
}

const int* Topology::own_link(int host_a, int host_b) const noexcept {
  if (link_of_.empty()) return nullptr;
  const auto found = link_of_.find(std::minmax(host_a, host_b));
  return found == link_of_.end() ? nullptr : &found->second;
}

const Link& Topology::link(int from, int to) const noexcept {
  const Seat& a = seat(from);
  const Seat& b = seat(to);
  if (a.host == b.host) return a.socket == b.socket ? costs_.within : costs_.across;
  const int* own = own_link(a.host, b.host);
  return own == nullptr ? costs_.between : links_[static_cast<std::size_t>(*own)].link;
}

Topology::Route Topology::route(int from, int to) const noexcept {
  const Seat& a = seat(from);
  const Seat& b = seat(to);
  Route route{.out = from, .in = ranks() + to, .link = &link(from, to)};
  route.out_bytes_per_second = route.in_bytes_per_second = route.link->bytes_per_second;
  if (a.host == b.host) {
    if (a.core >= 0) {
      route.out = a.core;
      route.out_bytes_per_second =
          std::max(route.in_bytes_per_second, costs_.copy_bytes_per_second);
    }
    if (b.core >= 0) route.in = b.core;
    return route;
  }
  if (a.port >= 0) route.out = a.port;
  if (b.port >= 0) route.in = b.port + 1;
  const double out = hosts_[static_cast<std::size_t>(a.host)].port_bytes_per_second;
  const double in = hosts_[static_cast<std::size_t>(b.host)].port_bytes_per_second;
  if (out > 0) route.out_bytes_per_second = out;
  if (in > 0) route.in_bytes_per_second = in;
  if (const int* own = own_link(a.host, b.host)) {
    const int first = busy_things_ - 2 * static_cast<int>(links_.size());
    route.wire = first + 2 * *own + (a.host < b.host ? 0 : 1);
  }
  return route;
}

Topology Topology::subset(const std::vector<int>& members) const {
  std::map<int, int> position;  // of a host among those that stay
  std::vector<Host> hosts;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Host& old = hosts_[static_cast<std::size_t>(host_of(members[i]))];
    const auto [it, fresh] =
        position.try_emplace(host_of(members[i]), static_cast<int>(hosts.size()));
    if (fresh) {
      hosts.push_back(old);
      hosts.back().ranks.clear();
      hosts.back().socket.clear();
    }
    Host& host = hosts[static_cast<std::size_t>(it->second)];
    host.ranks.push_back(static_cast<int>(i));
    if (!old.socket.empty()) host.socket.push_back(socket_of(members[i]));
  }
  std::vector<HostLink> links;
  for (const HostLink& own : links_) {
    const auto a = position.find(own.a);
    const auto b = position.find(own.b);
    if (a != position.end() && b != position.end())
      links.push_back({a->second, b->second, own.link});
  }
  return Topology(std::move(hosts), costs_, std::move(links));
}

}  // namespace motley
