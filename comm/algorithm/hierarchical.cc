// Hierarchical all-reduce, for L ranks on each of H hosts. The buffer is cut into L slices, and on
// each host every rank owns one: it collects the slice from the others of its host
// (reduce-scatter), reduces it with the owners on the other hosts, and gives it to the others of
// its host (all-gather). Where hosts have fewer ranks than the largest has, ranks own several
// slices.
//   hierarchical       owners run halving-doubling: 2 log2 H messages between hosts
//   hierarchical_ring  owners run a ring: 2(H-1) messages between hosts
//   weighted           owners run the direct algorithm, in which each host owns a share of the
//                      slice that suits its ports: a host that is slower by far owns none, so that
//                      it sends and receives its slice only once
//   bytes sent per rank 2(L-1)/L * n within the host and 2(H-1)/H * n/L to other hosts; all ports
//   of a host are busy   best where links within hosts are faster than those between
// Shares: the least largest time n[1 + (H-2) w_h] / B_h for shares w_h and port speeds B_h, as in
// Ryabinin et al., "Moshpit SGD", NeurIPS 2021, and its implementation's load balancing.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/algorithm/hosts.h"
#include "comm/topology.h"

namespace motley {
namespace {

class Hierarchical {
 public:
  Hierarchical(const Shape& shape, Schedule between)
      : hosts_(shape),
        host_(hosts_.host_of(shape.rank)),
        index_(hosts_.index_of(shape.rank)),
        size_(hosts_.size_of(host_)),
        between_(std::move(between)) {}

  int chunks() const { return hosts_.most() * between_.chunks; }
  int steps() const { return 4 * (size_ - 1) + middle(); }
  int max_step_chunks() const {  // within hosts, what the owner of most slices gets
    if (hosts_.most() == 1) return between_.max_step_chunks;
    int most = 1;
    for (int host = 0; host < hosts_.count(); ++host) {
      const int ranks = hosts_.size_of(host);
      most = std::max(most, (hosts_.most() + ranks - 1) / ranks);
    }
    return most * between_.chunks;
  }

  Step at(int i) const {
    const int exchanges = 2 * (size_ - 1);
    if (i < exchanges) return within(i, Step::kRecvReduce);
    if (i < exchanges + middle()) return across(i - exchanges);
    return within(i - exchanges - middle(), Step::kRecv);
  }

 private:
  // The slices of a rank of a host of `size` ranks begin here, and end where the next one's begin.
  int first_slice(int index) const { return index * hosts_.most() / size_; }
  int slices() const { return first_slice(index_ + 1) - first_slice(index_); }
  int owner(int host, int slice) const {
    return hosts_.rank_at(host, ((slice + 1) * hosts_.size_of(host) - 1) / hosts_.most());
  }
  int middle() const { return slices() * between_.steps; }

  // In round d to the d-th rank after this one, from the d-th before. To collect, one sends what
  // the other owns; to deliver, what is one's own.
  Step within(int i, Step::Kind receive) const {
    const int distance = i / 2 + 1;
    const bool send = i % 2 == 0;
    const int other = (index_ + (send ? distance : size_ - distance)) % size_;
    const int owns = send == (receive == Step::kRecvReduce) ? other : index_;
    const int first = first_slice(owns);
    return {send ? Step::kSend : receive, hosts_.rank_at(host_, other), first * between_.chunks,
            (first_slice(owns + 1) - first) * between_.chunks};
  }

  // One slice after another, so that owners of several cannot wait for each other in a circle.
  Step across(int i) const {
    const int slice = first_slice(index_) + i / between_.steps;
    Step step = between_.at(i % between_.steps);
    step.peer = owner(step.peer, slice);
    step.first_chunk += slice * between_.chunks;
    return step;
  }

  Hosts hosts_;
  int host_;
  int index_;
  int size_;  // of this rank's host
  Schedule between_;
};

Schedule hierarchical(const Shape& shape, Schedule (*between)(const Shape&)) {
  const Hosts hosts(shape);
  const Hierarchical ranks(shape,
                           between({.rank = hosts.host_of(shape.rank), .size = hosts.count()}));
  return {.chunks = ranks.chunks(),
          .steps = ranks.steps(),
          .max_step_chunks = ranks.max_step_chunks(),
          .at = [ranks](int i) { return ranks.at(i); }};
}

// What the ranks of a host send to other hosts together, in kilobytes per second: whole numbers, so
// that all ranks find the same shares.
std::int64_t speed_of(const Topology& topology, const Host& host) {
  const int ranks = static_cast<int>(host.ranks.size());
  const double port = host.port_bytes_per_second > 0 ? host.port_bytes_per_second
                                                     : topology.costs().between.bytes_per_second;
  const double all = port / 1e3 * (host.ports > 0 ? std::min(host.ports, ranks) : ranks);
  return static_cast<std::int64_t>(std::clamp(all, 1.0, 1e12));
}

std::vector<std::int64_t> speeds_of(const Topology& topology) {
  std::vector<std::int64_t> speeds;
  for (const Host& host : topology.hosts()) speeds.push_back(speed_of(topology, host));
  return speeds;
}

constexpr std::int64_t kOne = 1024;  // of speeds, relative to the slowest host's, and of times,
                                     // relative to the least that the slowest host needs

// The largest shares, in 1/kOne^2, with which no host needs longer than `time`.
std::vector<std::uint32_t> shares_within(std::int64_t time,
                                         const std::vector<std::int64_t>& speeds) {
  const auto others = std::max<std::int64_t>(1, static_cast<std::int64_t>(speeds.size()) - 2);
  std::vector<std::uint32_t> shares;
  for (const std::int64_t speed : speeds) {
    const std::int64_t share = (time * speed - kOne * kOne) / others;
    shares.push_back(static_cast<std::uint32_t>(std::clamp<std::int64_t>(share, 0, kOne * kOne)));
  }
  return shares;
}

// One share for each host; the sum, `slices` times, is below 2^32.
std::vector<std::uint32_t> shares_of(const Topology& topology, int slices) {
  std::vector<std::int64_t> speeds = speeds_of(topology);
  const std::int64_t slowest = *std::min_element(speeds.begin(), speeds.end());
  for (std::int64_t& speed : speeds) {
    speed = static_cast<std::int64_t>(
        std::min(1e3, static_cast<double>(speed) / static_cast<double>(slowest)) * kOne);
  }
  std::int64_t time = kOne;  // up to twice that: equal shares of equal hosts
  std::vector<std::uint32_t> shares;
  const auto sum = [&] { return std::accumulate(shares.begin(), shares.end(), std::int64_t{0}); };
  do {
    shares = shares_within(time++, speeds);
  } while (sum() < kOne * kOne);
  while (sum() * slices >> 32 != 0) {
    for (std::uint32_t& share : shares) share /= 2;
  }
  return shares;
}

}  // namespace

Schedule hierarchical_all_reduce(const Shape& shape) {
  return hierarchical(shape, halving_doubling_all_reduce);
}

Schedule hierarchical_ring_all_reduce(const Shape& shape) {
  return hierarchical(shape, ring_all_reduce);
}

bool suits_weighted(const Shape& shape) {
  if (has_levels(shape)) return true;
  if (shape.topology == nullptr) return false;
  const auto speeds = speeds_of(*shape.topology);
  const auto [least, most] = std::minmax_element(speeds.begin(), speeds.end());
  return *least * 10 < *most * 9;
}

Schedule weighted_all_reduce(const Shape& shape) {
  Schedule schedule = hierarchical(shape, direct_all_reduce);
  if (shape.topology == nullptr) return schedule;
  const std::vector<std::uint32_t> shares = shares_of(*shape.topology, Hosts(shape).most());
  if (std::equal(shares.begin() + 1, shares.end(), shares.begin())) return schedule;
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    schedule.weights.push_back(shares[static_cast<std::size_t>(chunk) % shares.size()]);
  }
  return schedule;
}

}  // namespace motley
