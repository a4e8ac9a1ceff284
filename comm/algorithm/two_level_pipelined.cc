// Pipelined two-level all-to-all, for m ranks on each of n hosts. As in the two-level algorithm, a
// rank sends to one rank of every other host what it has for all ranks of that host; but what comes
// in from a host is passed on within this one while the next host's is on its way, and goes to
// `out` at once.
//   messages (n-1) of m blocks between hosts and n(m-1) of one block within   bytes as two-level;
//   nothing is copied   best for middling blocks, where transfers within hosts hide behind those
//   between
// The overlap of the two levels of Nie et al., "HetuMoE", 2022, and Hwang et al., "Tutel", 2023.
#include <algorithm>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/algorithm/relays.h"

namespace motley {
namespace {

// Chunks: 2p of `in` and `out`, then scratch: `in` in order of hosts, if it is not so, and what
// comes in, by its source, then by whom it is for.
class Pipelined {
 public:
  explicit Pipelined(const Shape& shape)
      : hosts_(shape),
        size_(shape.size),
        host_(hosts_.host_of(shape.rank)),
        index_(hosts_.index_of(shape.rank)),
        width_(hosts_.size_of(host_)),
        relays_(hosts_, host_),
        came_(2 * size_ + (hosts_.in_runs() ? 0 : size_)) {
    first_.push_back(hosts_.in_runs() ? 0 : size_);
    for (int round = 0; round < hosts_.count(); ++round) {
      int steps = exchange_steps(round + 1);
      for (int distance = 0; distance < width_; ++distance) steps += pass_steps(round, distance);
      first_.push_back(first_.back() + steps);
    }
  }

  int chunks() const { return came_ + relays_.count(index_) * width_; }
  int steps() const { return first_.back(); }

  // In each round the exchange with the next host; then what came in the round before is passed on.
  Step at(int i) const {
    if (i < first_.front()) return {Step::kCopy, 0, hosts_.in_order(i), 1, 2 * size_ + i};
    const auto next = std::upper_bound(first_.begin(), first_.end(), i);
    const int round = static_cast<int>(next - first_.begin()) - 1;
    i -= *(next - 1);
    if (i < exchange_steps(round + 1)) return exchange(round + 1, i);
    i -= exchange_steps(round + 1);
    int distance = 0;
    for (; i >= pass_steps(round, distance); ++distance) i -= pass_steps(round, distance);
    return pass(round, distance, i);
  }

 private:
  int host_before(int distance) const {
    return (host_ + hosts_.count() - distance) % hosts_.count();
  }
  int rank_before(int distance) const { return (index_ + width_ - distance) % width_; }

  int exchange_steps(int distance) const {
    if (distance == hosts_.count()) return 0;
    return 1 + relays_.sources(index_, host_before(distance));
  }

  Step exchange(int distance, int i) const {
    if (i == 0) {
      const int to = (host_ + distance) % hosts_.count();
      const int first = hosts_.in_runs() ? hosts_.rank_at(to, 0) : 2 * size_ + hosts_.before(to);
      const int width = hosts_.size_of(to);
      return {Step::kSend, hosts_.rank_at(to, index_ % width), first, width};
    }
    const int s = relays_.before(index_, host_before(distance)) + i - 1;
    return {Step::kRecv, relays_.source(index_, s), came_ + s * width_, width_};
  }

  // To the rank `distance` after this one of its host, from that before; 0: this rank itself.
  int pass_steps(int round, int distance) const {
    const int sent = relays_.sources(index_, host_before(round));
    if (distance == 0) return sent;
    return sent + relays_.sources(rank_before(distance), host_before(round));
  }

  Step pass(int round, int distance, int i) const {
    const int host = host_before(round);
    const int from = rank_before(distance);
    const int sends = relays_.sources(index_, host);
    if (distance == 0) {
      const int s = relays_.before(index_, host) + i;
      return {Step::kCopy, 0, block(s, index_), 1, size_ + relays_.source(index_, s)};
    }
    // Sends and receives in turns, and then what is left of either.
    const int pairs = std::min(sends, relays_.sources(from, host));
    const bool send = i < 2 * pairs ? i % 2 == 0 : sends > pairs;
    const int number = i < 2 * pairs ? i / 2 : i - pairs;
    if (send) {
      const int to = (index_ + distance) % width_;
      return {Step::kSend, hosts_.rank_at(host_, to),
              block(relays_.before(index_, host) + number, to), 1};
    }
    const int source = relays_.source(from, relays_.before(from, host) + number);
    return {Step::kRecv, hosts_.rank_at(host_, from), size_ + source, 1};
  }

  // The block of the source at position s for the k-th rank of this host.
  int block(int s, int k) const {
    return s == relays_.own(index_) ? hosts_.rank_at(host_, k) : came_ + s * width_ + k;
  }

  Hosts hosts_;
  int size_;
  int host_;
  int index_;
  int width_;  // ranks on this host
  Relays relays_;
  int came_;
  std::vector<int> first_;  // step of each round, and the end
};

}  // namespace

Schedule two_level_pipelined_all_to_all(const Shape& shape) {
  const Pipelined ranks(shape);
  return {.chunks = ranks.chunks(),
          .steps = ranks.steps(),
          .max_step_chunks = Hosts(shape).most(),
          .at = [ranks](int i) { return ranks.at(i); },
          .scratch = ranks.chunks() - 2 * shape.size};
}

}  // namespace motley
