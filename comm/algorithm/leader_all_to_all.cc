// All-to-all by leaders. On each of n hosts the first rank collects what all m ranks send,
// exchanges one message with the leader of every other host, and hands out what has come in.
//   messages 2 for a rank, 2(m-1) + (n-1) for a leader   bytes sent between hosts m (n-1)/n * N per
//   host, all by its leader, which copies m * N twice
//   best for very short blocks where messages between hosts are dear: fewest of them, n(n-1)
// Nie et al., "HetuMoE", 2022, section 4.
#include <algorithm>
#include <utility>

#include "comm/algorithm/families.h"
#include "comm/algorithm/hosts.h"

namespace motley {
namespace {

// Chunks of a leader: 2p of `in` and `out`, then scratch, m p chunks each: what the ranks of its
// host send; the messages to other hosts, by host, rank here and rank there; those from other
// hosts, by host, rank there and rank here; what the ranks of its host get.
class Leader {
 public:
  explicit Leader(const Shape& shape)
      : hosts_(shape),
        size_(shape.size),
        host_(hosts_.host_of(shape.rank)),
        width_(hosts_.size_of(host_)) {
    const int remote = size_ - width_;
    const int phases[] = {width_ - 1, width_ * remote, 2 * (hosts_.count() - 1), width_ * size_,
                          width_ - 1};
    for (int i = 0; i < 5; ++i) end_[i] = phases[i] + (i == 0 ? 0 : end_[i - 1]);
  }

  int chunks() const { return 2 * size_ + 4 * width_ * size_; }
  int steps() const { return end_[4]; }

  Step at(int i) const {
    if (i < end_[0]) return {Step::kRecv, hosts_.rank_at(host_, i + 1), sent_by(i + 1, 0), size_};
    if (i < end_[1]) return pack(i - end_[0]);
    if (i < end_[2]) return exchange(i - end_[1]);
    if (i < end_[3]) return unpack(i - end_[2]);
    const int k = i - end_[3] + 1;
    return {Step::kSend, hosts_.rank_at(host_, k), got_by(k, 0), size_};
  }

 private:
  // What the k-th rank of this host sends to a rank, and gets from it.
  int sent_by(int k, int rank) const { return k == 0 ? rank : 2 * size_ + k * size_ + rank; }
  int got_by(int k, int rank) const {
    return size_ + rank + (k == 0 ? 0 : size_ + (3 * width_ + k) * size_);
  }
  int to_host(int host) const { return 2 * size_ + width_ * (size_ + hosts_.before(host)); }
  int from_host(int host) const { return 2 * size_ + width_ * (2 * size_ + hosts_.before(host)); }

  Step pack(int i) const {
    const int k = i % width_;
    int place = i / width_;  // of the receiver, host by host, those of this host left out
    if (place >= hosts_.before(host_)) place += width_;
    const int rank = hosts_.in_order(place);
    const int host = hosts_.host_of(rank);
    return {Step::kCopy, 0, sent_by(k, rank), 1,
            to_host(host) + k * hosts_.size_of(host) + hosts_.index_of(rank)};
  }

  Step exchange(int i) const {
    const int distance = i / 2 + 1;
    const int other =
        (host_ + (i % 2 == 0 ? distance : hosts_.count() - distance)) % hosts_.count();
    const int blocks = width_ * hosts_.size_of(other);
    if (i % 2 == 0) return {Step::kSend, hosts_.rank_at(other, 0), to_host(other), blocks};
    return {Step::kRecv, hosts_.rank_at(other, 0), from_host(other), blocks};
  }

  Step unpack(int i) const {
    const int source = i / width_;
    const int k = i % width_;
    const int host = hosts_.host_of(source);
    const int index = hosts_.index_of(source);
    const int block = host == host_ ? sent_by(index, hosts_.rank_at(host_, k))
                                    : from_host(host) + index * width_ + k;
    return {Step::kCopy, 0, block, 1, got_by(k, source)};
  }

  Hosts hosts_;
  int size_;
  int host_;
  int width_;        // ranks on this host
  int end_[5] = {};  // of the phases
};

}  // namespace

Schedule leader_all_to_all(const Shape& shape) {
  const Hosts hosts(shape);
  const int most = hosts.most() == 1 ? 1 : std::max(shape.size, hosts.most() * hosts.most());
  const int host = hosts.host_of(shape.rank);
  if (hosts.index_of(shape.rank) != 0) {
    const auto at = [size = shape.size, leader = hosts.rank_at(host, 0)](int i) -> Step {
      return {i == 0 ? Step::kSend : Step::kRecv, leader, i == 0 ? 0 : size, size};
    };
    return {.chunks = 2 * shape.size, .steps = 2, .max_step_chunks = most, .at = at};
  }
  const Leader leader(shape);
  return {.chunks = leader.chunks(),
          .steps = leader.steps(),
          .max_step_chunks = most,
          .at = [leader](int i) { return leader.at(i); },
          .scratch = leader.chunks() - 2 * shape.size};
}

}  // namespace motley
