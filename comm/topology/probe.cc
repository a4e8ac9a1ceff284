#include "comm/topology/probe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "comm/machine.h"
#include "comm/topology/arrivals.h"
#include "comm/topology/reading.h"

namespace motley {
namespace {

constexpr int kAllPairs = 8;  // hosts of which all pairs are measured
constexpr Duration kAlike = std::chrono::microseconds(100);  // latencies that differ by less

struct Pair {
  int a = 0;
  int b = 0;
};

// Pairs of hosts in rounds; in each round a host is in one pair at most.
std::vector<std::vector<Pair>> rounds_between(int hosts) {
  std::vector<std::vector<Pair>> rounds;
  if (hosts > kAllPairs) {  // the neighbours at distances 1, 2, 4, …
    for (int distance = 1; 2 * distance <= hosts; distance *= 2) {
      for (int parity = 0; parity < 2; ++parity) {
        std::vector<Pair>& round = rounds.emplace_back();
        for (int a = 0; a + distance < hosts; ++a) {
          if (a / distance % 2 == parity) round.push_back({a, a + distance});
        }
      }
    }
    return rounds;
  }
  const int slots = hosts + hosts % 2;  // a tournament by the circle method
  for (int r = 0; r + 1 < slots; ++r) {
    std::vector<Pair>& round = rounds.emplace_back();
    for (int i = 0; i < slots / 2; ++i) {
      const int a = i == 0 ? slots - 1 : (r + i) % (slots - 1);
      const int b = (r + slots - 1 - i) % (slots - 1);
      if (std::max(a, b) < hosts) round.push_back({std::min(a, b), std::max(a, b)});
    }
  }
  return rounds;
}

// The ranks of a host's most crowded socket, and two ranks on different sockets; empty where there
// are not two.
std::vector<int> on_one_socket(const Topology& topology, const Host& host) {
  std::vector<int> best;
  for (const int first : host.ranks) {
    std::vector<int> same;
    for (const int rank : host.ranks) {
      if (topology.socket_of(rank) == topology.socket_of(first)) same.push_back(rank);
    }
    if (same.size() > best.size()) best = std::move(same);
  }
  return best.size() > 1 ? best : std::vector<int>{};
}

std::vector<int> on_two_sockets(const Topology& topology, const Host& host) {
  for (const int rank : host.ranks) {
    if (topology.socket_of(rank) != topology.socket_of(host.ranks.front()))
      return {host.ranks.front(), rank};
  }
  return {};
}

class Probe {
 public:
  Probe(Communicator& comm, const Topology& known)
      : comm_(comm), known_(known), rounds_(rounds_between(host_count())) {
    for (const auto& round : rounds_) pairs_.insert(pairs_.end(), round.begin(), round.end());
    within_.resize(known.hosts().size());
    across_.resize(known.hosts().size());
    hosts_.resize(known.hosts().size());
    seats_.resize(at(known.ranks()));
    const Machine machine = Machine::discover();
    seats_[at(comm.rank())] = {static_cast<double>(machine.cores),
                               static_cast<double>(machine.first_core)};
    between_.resize(pairs_.size());
  }

  Topology run() {
    const std::size_t mine = at(known_.host_of(comm_.rank()));
    const Host& host = known_.hosts()[mine];
    comm_.barrier().wait();
    const std::uint32_t e = epoch();
    if (comm_.rank() == host.ranks.front()) hosts_[mine] = read_host(comm_, e);
    add_up(hosts_, &HostReading::call, &HostReading::reduce_bytes_per_second,
           &HostReading::copy_bytes_per_second);
    add_up(seats_, &Seat::cores, &Seat::first_core);
    comm_.barrier().wait();
    measure(within_[mine], epoch(), on_one_socket(known_, host), Way::kWithinHost);
    comm_.barrier().wait();
    measure_crowd(within_[mine], epoch(), host);
    comm_.barrier().wait();
    measure(across_[mine], epoch(), on_two_sockets(known_, host), Way::kWithinHost);
    const auto links = [this](std::vector<LinkReading>& readings) {
      add_up(readings, &LinkReading::known, &LinkReading::hop, &LinkReading::tree,
             &LinkReading::per_turn, &LinkReading::per_message, &LinkReading::bytes_per_second);
    };
    between_ = measure_between([](std::size_t) { return true; });
    for (auto* readings : {&within_, &across_, &between_}) links(*readings);
    look_again(links);
    return result();
  }

 private:
  struct Seat {
    double cores = 0;
    double first_core = 0;
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int host_count() const { return static_cast<int>(known_.hosts().size()); }
  int first_rank(int host) const { return known_.hosts()[at(host)].ranks.front(); }

  std::uint32_t epoch() { return 3 * comm_.world().next_call(); }  // all ranks' calls agree
  void measure(LinkReading& reading, std::uint32_t e, const std::vector<int>& ranks, Way way) {
    if (std::find(ranks.begin(), ranks.end(), comm_.rank()) != ranks.end())
      reading = read_link(comm_, e, ranks, way);
  }

  bool is_crowded(const Host& host) const {
    const int ranks = static_cast<int>(host.ranks.size());
    return on_one_socket(known_, host).size() == host.ranks.size() && ranks <= kMostCrowded &&
           ranks > cores_of(host);
  }

  // Where ranks share cores, what whole calls took says more than one exchange. One rank finds the
  // costs, lest computers disagree on the last bit.
  void measure_crowd(LinkReading& reading, std::uint32_t e, const Host& host) {
    if (!is_crowded(host)) return;
    const std::vector<CallTime> times = read_calls(comm_, e, host.ranks);
    if (comm_.rank() != host.ranks.front()) return;
    const HostReading& own = hosts_[at(known_.host_of(comm_.rank()))];
    TopologyCosts costs{.within = link_of(reading, own.call, true),
                        .reduce_bytes_per_second = own.reduce_bytes_per_second,
                        .copy_bytes_per_second = own.copy_bytes_per_second,
                        .per_call = Duration(std::llround(own.call))};
    costs = fit_crowd(costs, static_cast<int>(host.ranks.size()), cores_of(host), times,
                      comm_.options().segment_bytes);
    const auto ns = [](Duration time) { return static_cast<double>(time.count()); };
    reading.per_turn = ns(costs.per_turn);
    reading.per_message = ns(costs.within.per_message);
    reading.hop = ns(costs.within.latency) + own.call + 2 * reading.per_message;
    reading.bytes_per_second = costs.within.bytes_per_second;
  }

  // Of the pairs that are wanted, by position in pairs_.
  std::vector<LinkReading> measure_between(const std::function<bool(std::size_t)>& wanted) {
    std::vector<LinkReading> readings(pairs_.size());
    std::size_t next = 0;
    for (const std::vector<Pair>& round : rounds_) {
      const std::size_t first = next;
      next += round.size();
      bool any = false;
      for (std::size_t i = first; i < next; ++i) any = any || wanted(i);
      if (!any) continue;
      comm_.barrier().wait();
      const std::uint32_t e = epoch();
      for (std::size_t i = first; i < next; ++i) {
        const std::vector<int> ranks = {first_rank(pairs_[i].a), first_rank(pairs_[i].b)};
        if (wanted(i)) measure(readings[i], e, ranks, Way::kBetweenHosts);
      }
    }
    return readings;
  }

  // What seems unlike the others may have been held up by something else: the better of two
  // readings counts.
  void look_again(const std::function<void(std::vector<LinkReading>&)>& add_up_links) {
    if (pairs_.empty()) return;
    const std::vector<Host> hosts = measured_hosts();
    std::vector<bool> odd(pairs_.size());
    for (std::size_t i = 0; i < pairs_.size(); ++i) odd[i] = is_unusual(i, hosts);
    std::vector<LinkReading> again = measure_between([&](std::size_t i) { return odd[i]; });
    add_up_links(again);
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (!odd[i]) continue;
      between_[i].hop = std::min(between_[i].hop, again[i].hop);
      between_[i].per_message = std::min(between_[i].per_message, again[i].per_message);
      between_[i].bytes_per_second =
          std::max(between_[i].bytes_per_second, again[i].bytes_per_second);
    }
  }

  // Adds up the fields of all ranks, of which one each is not zero.
  template <class Record, class... Field>
  void add_up(std::vector<Record>& records, Field Record::*... field) {
    std::vector<double> all;
    for (const Record& record : records) all.insert(all.end(), {record.*field...});
    comm_.all_reduce(all, ReduceOp::kSum).wait();
    auto next = all.begin();
    for (Record& record : records) ((record.*field = *next++), ...);
  }

  Link link_of(const LinkReading& reading, double call, bool one_core_each) const {
    const double busy = reading.per_message * (one_core_each ? 2 : 1);
    return {.latency = Duration(std::llround(std::max(50.0, reading.hop - call - busy))),
            .bytes_per_second = reading.bytes_per_second,
            .per_message = Duration(std::llround(reading.per_message))};
  }

  // The medians of those that were measured.
  std::optional<Link> typical(const std::vector<LinkReading>& readings, bool cores) const {
    std::vector<double> hops;
    std::vector<double> messages;
    std::vector<double> speeds;
    for (const LinkReading& reading : readings) {
      if (reading.known == 0) continue;
      hops.push_back(reading.hop);
      messages.push_back(reading.per_message);
      speeds.push_back(reading.bytes_per_second);
    }
    if (hops.empty()) return std::nullopt;
    return link_of({.known = 1,
                    .hop = median(hops),
                    .per_message = median(messages),
                    .bytes_per_second = median(speeds)},
                   call(), cores);
  }

  // Ranks that share cores do not rest while a collective is under way: a message waits for the
  // turn of its receiver, who finds it in the cache if it is on the same core. The readings within
  // hosts, by host, as they are for the average of all pairs where that is so.
  std::vector<LinkReading> with_turns(std::vector<LinkReading> readings) const {
    for (std::size_t h = 0; h < readings.size(); ++h) {
      const std::size_t ranks = on_one_socket(known_, known_.hosts()[h]).size();
      const auto cores = static_cast<std::size_t>(cores_of(known_.hosts()[h]));
      if (readings[h].known == 0 || ranks <= cores || is_crowded(known_.hosts()[h])) continue;
      const int hops = 2 * std::bit_width(ranks - 1);  // up the tree and down
      readings[h].hop = call() + std::max(0.0, readings[h].tree - call()) / hops;
      const double each = static_cast<double>(ranks) / static_cast<double>(cores);
      const double on_same = (each - 1) / static_cast<double>(ranks - 1);
      readings[h].bytes_per_second =
          1 / ((1 - on_same) / readings[h].bytes_per_second +
               on_same / over_hosts(&HostReading::copy_bytes_per_second));
    }
    return readings;
  }

  double over_hosts(double HostReading::*field) const {
    std::vector<double> values;
    for (const HostReading& reading : hosts_) values.push_back(reading.*field);
    return median(values);
  }
  double call() const { return over_hosts(&HostReading::call); }

  // Ranks may be bound to cores of their own, or to the same.
  int cores_of(const Host& host) const {
    std::map<int, int> by_first;
    for (const int rank : host.ranks) {
      const Seat& seat = seats_[at(rank)];
      by_first[static_cast<int>(seat.first_core)] = static_cast<int>(seat.cores);
    }
    int cores = 0;
    for (const auto& [first, count] : by_first) cores += count;
    return std::max(1, cores);
  }

  Topology result() const {
    TopologyCosts costs = known_.costs();
    costs.reduce_bytes_per_second = over_hosts(&HostReading::reduce_bytes_per_second);
    costs.copy_bytes_per_second = over_hosts(&HostReading::copy_bytes_per_second);
    costs.per_call = Duration(std::llround(call()));
    std::vector<double> turns;
    for (std::size_t h = 0; h < within_.size(); ++h) {
      if (is_crowded(known_.hosts()[h])) turns.push_back(within_[h].per_turn);
    }
    costs.per_turn = Duration(std::llround(median(turns)));
    costs.within = typical(with_turns(within_), true).value_or(costs.within);
    costs.across = typical(across_, true).value_or(costs.within);
    costs.between = typical(between_, false).value_or(costs.between);
    std::vector<Host> hosts = measured_hosts();
    for (const Host& host : hosts) {
      costs.between.bytes_per_second =
          std::max(costs.between.bytes_per_second, host.port_bytes_per_second);
    }
    std::vector<HostLink> links;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (is_unusual(i, hosts))
        links.push_back({pairs_[i].a, pairs_[i].b, link_of(between_[i], call(), false)});
    }
    return Topology(std::move(hosts), costs, std::move(links));
  }

  std::vector<Host> measured_hosts() const {
    std::vector<Host> hosts = known_.hosts();
    for (std::size_t h = 0; h < hosts.size(); ++h) {
      hosts[h].cores = cores_of(hosts[h]);
      if (pairs_.empty()) continue;
      hosts[h].ports = 1;
      hosts[h].port_bytes_per_second = port_speed(static_cast<int>(h));
    }
    even_out(hosts);
    return hosts;
  }

  // A port is as fast as its best links: those that come near to the best are as good.
  double port_speed(int host) const {
    std::vector<double> speeds;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      if (pairs_[i].a == host || pairs_[i].b == host)
        speeds.push_back(between_[i].bytes_per_second);
    }
    const double best = *std::max_element(speeds.begin(), speeds.end());
    std::erase_if(speeds, [best](double speed) { return speed < 0.6 * best; });
    return median(speeds);
  }

  // Ports whose speeds are within a quarter of each other are alike: measurements differ by that.
  static void even_out(std::vector<Host>& hosts) {
    std::vector<double> speeds;
    for (const Host& host : hosts) speeds.push_back(host.port_bytes_per_second);
    std::sort(speeds.begin(), speeds.end());
    for (std::size_t first = 0; first < speeds.size();) {
      const auto end = std::upper_bound(speeds.begin(), speeds.end(), 1.25 * speeds[first]);
      const std::vector<double> alike(speeds.begin() + static_cast<std::ptrdiff_t>(first), end);
      for (Host& host : hosts) {
        if (host.port_bytes_per_second >= alike.front() &&
            host.port_bytes_per_second <= alike.back())
          host.port_bytes_per_second = median(alike);
      }
      first += alike.size();
    }
  }

  // Whether a link is slower than the ports at its ends, or nearer or farther than most.
  bool is_unusual(std::size_t pair, const std::vector<Host>& hosts) const {
    const Link link = link_of(between_[pair], call(), false);
    const Link usual = *typical(between_, false);
    const double port = std::min(hosts[at(pairs_[pair].a)].port_bytes_per_second,
                                 hosts[at(pairs_[pair].b)].port_bytes_per_second);
    const auto [near, far] = std::minmax(link.latency, usual.latency);
    return link.bytes_per_second < 0.6 * port || (far - near > kAlike && far > 2 * near);
  }

  Communicator& comm_;
  const Topology& known_;
  std::vector<std::vector<Pair>> rounds_;
  std::vector<Pair> pairs_;
  std::vector<LinkReading> within_;   // by host
  std::vector<LinkReading> across_;   // by host
  std::vector<LinkReading> between_;  // by pair
  std::vector<HostReading> hosts_;
  std::vector<Seat> seats_;  // by rank
};

}  // namespace

Topology probe(Communicator& comm, const Topology& known) { return Probe(comm, known).run(); }

}  // namespace motley
