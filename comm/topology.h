// comm/topology.h: which ranks share a host, and what links, reductions and copies cost.
//
//   const auto flat = Topology::uniform(8, {.latency = std::chrono::microseconds(20)});
//   const auto racks = Topology::hosts({0, 0, 1, 1}, {.between = {.bytes_per_second = 1e8}});
//   const auto mine = Topology::read("cluster.topology");   // written by to_text(), or by hand
//
// The same object prices schedules (algorithm/cost.h), shapes the hierarchical ones and feeds the
// simulator. The model, once for all: a message waits for its turn at the sender's port, occupies
// it for Link::per_message plus its size over the speed, takes the latency of its link, and waits
// for its turn at the receiver's port, which it occupies likewise.
// - Every rank has one port out and one in, unless its host says otherwise.
// - Host::cores: the ranks of the host share so many cores, each of which does for one rank at a
//   time: copies what it sends within the host, takes in what it receives, reduces. Where ranks are
//   more than cores, up to 16 of them, TopologyCosts::per_turn passes before it works for another.
// - Host::ports: the ranks of the host share so many network ports, dealt out in turns; each takes
//   messages to and from other hosts at Host::port_bytes_per_second, out and in at once.
// - A pair of hosts with a link of its own (HostLink) shares that link, one message after another
//   in each direction, beside the ports.
//
// Text: one statement a line; '#' starts a comment; every name=value but `ranks` may be left out.
// Speeds are bytes_per_second, times latency_us and message_us.
//   motley topology 1
//   reduce bytes_per_second=4e9                  of op(chunk, received), in bytes received
//   copy bytes_per_second=8e9                    from memory to memory
//   call time_us=0                               that every call takes beside its steps
//   turn time_us=0                               that a core takes to turn to another rank
//   within latency_us=1 message_us=0 bytes_per_second=5e9     one socket of one host
//   across latency_us=1 message_us=0 bytes_per_second=5e9     two sockets of one host
//   between latency_us=20 message_us=0 bytes_per_second=1.25e9           two hosts
//   host node-a ranks=0-3 sockets=0,0,1,1 cores=4 ports=1 bytes_per_second=1.25e9
//   host node-b ranks=4,5
//   link node-a node-b latency_us=5000 message_us=0 bytes_per_second=1e7
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/clock.h"

namespace motley {

// One direction of the way between two ranks.
struct Link {
  Duration latency = std::chrono::microseconds(20);
  double bytes_per_second = 1.25e9;
  Duration per_message{};  // for which a message of any size occupies a port
  friend bool operator==(const Link&, const Link&) = default;
};

struct TopologyCosts {
  Link within = {.latency = std::chrono::microseconds(1), .bytes_per_second = 5e9};  // one host
  Link between{};                                                                    // two hosts
  double reduce_bytes_per_second = 4e9;  // of op(chunk, received), in bytes received
  double copy_bytes_per_second = 8e9;    // from memory to memory
  Duration per_call{};                   // for which starting a call of any kind takes
  Duration per_turn{};                   // for which a core takes to turn to another rank
  // Two sockets (NUMA nodes) of one host.
  Link across = {.latency = std::chrono::microseconds(1), .bytes_per_second = 5e9};
  friend bool operator==(const TopologyCosts&, const TopologyCosts&) = default;
};

struct Host {
  std::string name;                  // unique, without blanks; "host0" … where none is given
  std::vector<int> ranks;            // at least one, ascending
  std::vector<int> socket;           // of each rank, from 0; empty: all on one
  int cores = 0;                     // that its ranks share; 0: one or more for each
  int ports = 0;                     // that its ranks share; 0: one for each
  double port_bytes_per_second = 0;  // 0: that of the link
  friend bool operator==(const Host&, const Host&) = default;
};

// The link between two hosts where it is not TopologyCosts::between; the same in both directions.
struct HostLink {
  int a = 0;
  int b = 0;  // positions in Topology::hosts()
  Link link{};
  friend bool operator==(const HostLink&, const HostLink&) = default;
};

class Topology {
 public:
  // `ranks` ranks, all pairs of which are joined by like links; each on a host of its own.
  static Topology uniform(int ranks, const Link& link = {});
  // Rank r is on host host_of[r]; hosts are numbered from 0. Hosts without ranks are left out.
  static Topology hosts(const std::vector<int>& host_of, const TopologyCosts& costs);
  // Throws kInvalid, as all of these do, if there is no rank, a rank is on no host or on two, or a
  // latency, bandwidth, speed or number is out of range.
  Topology(std::vector<Host> hosts, const TopologyCosts& costs, std::vector<HostLink> links = {});

  // From text as above. Throws kInvalid with `file` and the line.
  static Topology parse(std::string_view text, const std::string& file);
  // The same from a file. Throws kIo if it cannot be read.
  static Topology read(const std::string& path);
  // Text that parse() turns into an equal topology.
  std::string to_text() const;

  int ranks() const noexcept { return static_cast<int>(seats_.size()); }
  const std::vector<Host>& hosts() const noexcept { return hosts_; }
  const std::vector<HostLink>& links() const noexcept { return links_; }
  const TopologyCosts& costs() const noexcept { return costs_; }
  int host_of(int rank) const noexcept { return seat(rank).host; }
  int socket_of(int rank) const noexcept { return seat(rank).socket; }
  bool same_host(int a, int b) const noexcept { return host_of(a) == host_of(b); }
  // What a message from one of two different ranks to the other costs, apart from port speeds.
  // O(1).
  const Link& link(int from, int to) const noexcept;

  // The way of a message, for whoever keeps account of what is busy (algorithm/traffic.h). O(1).
  struct Route {
    int out = 0;  // port of the sender, of the receiver; in [0, busy_things())
    int in = 0;
    int wire = -1;  // the link that the pair of hosts has for itself, or -1
    const Link* link = nullptr;
    double out_bytes_per_second = 0;
    double in_bytes_per_second = 0;
  };
  Route route(int from, int to) const noexcept;
  int busy_things() const noexcept { return busy_things_; }
  // The core that reduces for `rank`, or -1 if it has one of its own.
  int core_of(int rank) const noexcept { return seat(rank).core; }

  // The topology among some of the ranks, numbered by position in `members`; hosts in order of
  // their first member.
  Topology subset(const std::vector<int>& members) const;

  friend bool operator==(const Topology& a, const Topology& b) {
    return a.hosts_ == b.hosts_ && a.costs_ == b.costs_ && a.links_ == b.links_;
  }

 private:
  struct Seat {  // of a rank
    int host = -1;
    int socket = 0;
    int core = -1;
    int port = -1;  // of its host, out; the one after is in. -1: its own
  };
  const Seat& seat(int rank) const noexcept { return seats_[static_cast<std::size_t>(rank)]; }
  void check_hosts() const;
  void check_links() const;
  void place_ranks();
  const int* own_link(int host_a, int host_b) const noexcept;

  std::vector<Host> hosts_;
  TopologyCosts costs_;
  std::vector<HostLink> links_;
  std::vector<Seat> seats_;                     // by rank
  std::map<std::pair<int, int>, int> link_of_;  // hosts, the lower first, to position in links_
  int busy_things_ = 0;
};

}  // namespace motley
