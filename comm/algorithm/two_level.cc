// Two-level all-to-all, for m ranks on each of n hosts. First between hosts: a rank sends to one
// rank of every other host, that at its own position, what it has for all ranks of that host; then
// within the host: a rank gives every other what has come in for it and what it has itself.
//   messages (m-1) + (n-1), of n and m blocks   bytes sent per rank (n-1)/n * N to other hosts and
//   (m-1)/m * N within, N in all; N is copied twice
//   best for short blocks among many ranks, if Bruck's hops cost too much
// Where hosts have different numbers of ranks, a rank at position j sends to position j mod the
// other host's number. Nie et al., "HetuMoE", 2022; Hwang et al., "Tutel", MLSys 2023 (2DH).
#include <utility>
#include <vector>

#include "comm/algorithm/families.h"
#include "comm/algorithm/relays.h"

namespace motley {
namespace {

// Chunks: 2p of `in` and `out`, then scratch: `in` in order of hosts, if it is not so; what comes
// in, by its source, then by whom it is for; the same by whom it is for, then by its source; and
// what the others of the host give, by them, then by its source.
class TwoLevel {
 public:
  explicit TwoLevel(const Shape& shape)
      : hosts_(shape),
        size_(shape.size),
        rank_(shape.rank),
        host_(hosts_.host_of(rank_)),
        index_(hosts_.index_of(rank_)),
        width_(hosts_.size_of(host_)),
        relays_(hosts_, host_),
        sources_(relays_.count(index_)) {
    came_ = 2 * size_ + (hosts_.in_runs() ? 0 : size_);
    sorted_ = came_ + sources_ * width_;
    given_ = sorted_ + sources_ * width_;
    for (int distance = 1; distance < hosts_.count(); ++distance) exchange_with(distance);
    const int phases[] = {hosts_.in_runs() ? 0 : size_, static_cast<int>(between_.size()),
                          sources_ * width_, 2 * (width_ - 1), size_};
    for (int i = 0; i < 5; ++i) end_[i] = phases[i] + (i == 0 ? 0 : end_[i - 1]);
  }

  int chunks() const { return given_ + size_; }
  int steps() const { return end_[4]; }

  Step at(int i) const {
    if (i < end_[0]) return {Step::kCopy, 0, hosts_.in_order(i), 1, 2 * size_ + i};
    if (i < end_[1]) return between_[static_cast<std::size_t>(i - end_[0])];
    if (i < end_[2]) return sort(i - end_[1]);
    if (i < end_[3]) return give(i - end_[2]);
    return unpack(i - end_[3]);
  }

 private:
  void exchange_with(int distance) {
    const int to = (host_ + distance) % hosts_.count();
    const int from = (host_ + hosts_.count() - distance) % hosts_.count();
    const int first = hosts_.in_runs() ? hosts_.rank_at(to, 0) : 2 * size_ + hosts_.before(to);
    const int width = hosts_.size_of(to);
    between_.push_back({Step::kSend, hosts_.rank_at(to, index_ % width), first, width});
    const int before = relays_.before(index_, from);
    for (int s = before; s < before + relays_.sources(index_, from); ++s) {
      between_.push_back({Step::kRecv, relays_.source(index_, s), came_ + s * width_, width_});
    }
  }

  Step sort(int i) const {
    const int s = i / width_;
    const int k = i % width_;
    const int chunk = s == relays_.own(index_) ? hosts_.rank_at(host_, k) : came_ + i;
    const int to = k == index_ ? size_ + relays_.source(k, s) : sorted_ + k * sources_ + s;
    return {Step::kCopy, 0, chunk, 1, to};
  }

  Step give(int i) const {
    const int distance = i / 2 + 1;
    const int to = (index_ + distance) % width_;
    if (i % 2 == 0)
      return {Step::kSend, hosts_.rank_at(host_, to), sorted_ + to * sources_, sources_};
    const int from = (index_ + width_ - distance) % width_;
    return {Step::kRecv, hosts_.rank_at(host_, from), given_ + relays_.count_before(from),
            relays_.count(from)};
  }

  // What came through this rank is in `out` already.
  Step unpack(int i) const {
    const int k = relays_.owner(i);
    const int source = relays_.source(k, i - relays_.count_before(k));
    return {Step::kCopy, 0, given_ + i, k == index_ ? 0 : 1, size_ + source};
  }

  Hosts hosts_;
  int size_;
  int rank_;
  int host_;
  int index_;
  int width_;  // ranks on this host
  Relays relays_;
  int sources_;  // whose blocks come through this rank, itself one of them
  int came_ = 0;
  int sorted_ = 0;
  int given_ = 0;
  std::vector<Step> between_;  // n - 1 exchanges
  int end_[5] = {};            // of the phases
};

}  // namespace

Schedule two_level_all_to_all(const Shape& shape) {
  const TwoLevel ranks(shape);
  return {.chunks = ranks.chunks(),
          .steps = ranks.steps(),
          .max_step_chunks = most_relayed(Hosts(shape)),
          .at = [ranks](int i) { return ranks.at(i); },
          .scratch = ranks.chunks() - 2 * shape.size};
}

}  // namespace motley
