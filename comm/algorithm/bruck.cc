// Bruck's all-to-all. A block travels the distance d between its ranks in hops of the powers of two
// that make up d: in round k all blocks whose distance has bit k go 2^k ranks on, in one message.
//   messages log2 p, rounded up   bytes sent per rank about n/2 log2 p, and as many copied twice
//   best for short blocks among many ranks
// Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in
// multiport message-passing systems", IEEE TPDS 1997.
#include <algorithm>
#include <bit>
#include <vector>

#include "comm/algorithm/families.h"

namespace motley {
namespace {

// Chunks: 2p of `in` and `out`, then scratch: p blocks by distance, then p for messages, of which
// those sent take one half and those received the other.
class Bruck {
 public:
  explicit Bruck(const Shape& shape)
      : rank_(shape.rank),
        size_(shape.size),
        rounds_(std::bit_width(static_cast<unsigned>(shape.size - 1))) {
    for (int k = 0; k < rounds_; ++k) {
      first_.push_back(steps_);
      steps_ += 2 * runs(k) + 2;
    }
    first_.push_back(steps_);
    steps_ += size_;
  }

  int steps() const { return steps_; }
  // Blocks whose distance has bit k.
  int moved(int k) const {
    const int whole = size_ >> (k + 1) << k;
    return whole + std::max(0, size_ % (2 << k) - (1 << k));
  }

  Step at(int i) const {
    if (i < 2) return turn(i);
    if (i >= first_.back()) {  // the block of distance d came from rank - d
      const int d = i - first_.back();
      return {Step::kCopy, 0, by_distance(d), 1, size_ + (rank_ + size_ - d) % size_};
    }
    const auto next = std::upper_bound(first_.begin(), first_.end(), i);
    const int k = static_cast<int>(next - first_.begin()) - 1;
    return round(k, i - *(next - 1));
  }

 private:
  int by_distance(int d) const { return 2 * size_ + d; }
  // Runs of consecutive distances that have bit k.
  int runs(int k) const { return (moved(k) + (1 << k) - 1) >> k; }

  // The blocks from this rank's own on, then those before it.
  Step turn(int i) const {
    if (i == 0) return {Step::kCopy, 0, rank_, size_ - rank_, by_distance(0)};
    return {Step::kCopy, 0, 0, rank_, by_distance(size_ - rank_)};
  }

  // Packs, sends, receives and unpacks.
  Step round(int k, int i) const {
    const int count = runs(k);
    if (i < count) return copy_run(k, i, Step::kSend);
    const int hop = 1 << k;
    if (i == count) return {Step::kSend, (rank_ + hop) % size_, out_message(), moved(k)};
    if (i == count + 1) {
      return {Step::kRecv, (rank_ + size_ - hop) % size_, in_message(), moved(k)};
    }
    return copy_run(k, i - count - 2, Step::kRecv);
  }

  int out_message() const { return 3 * size_; }  // of p / 2 blocks at most
  int in_message() const { return 3 * size_ + size_ / 2; }

  Step copy_run(int k, int run, Step::Kind way) const {
    const int length = 1 << k;
    const int block = by_distance((2 * run + 1) << k);
    const int count = std::min(length, moved(k) - run * length);
    if (way == Step::kSend) return {Step::kCopy, 0, block, count, out_message() + run * length};
    return {Step::kCopy, 0, in_message() + run * length, count, block};
  }

  int rank_;
  int size_;
  int rounds_;
  int steps_ = 2;
  std::vector<int> first_;  // step of each round, and of the copies to `out`
};

}  // namespace

Schedule bruck_all_to_all(const Shape& shape) {
  const Bruck bruck(shape);
  const int size = shape.size;
  int most = 1;
  for (int k = 0; 1 << k < size; ++k) most = std::max(most, bruck.moved(k));
  return {.chunks = 4 * size,
          .steps = bruck.steps(),
          .max_step_chunks = most,
          .at = [bruck](int i) { return bruck.at(i); },
          .scratch = 2 * size};
}

}  // namespace motley
