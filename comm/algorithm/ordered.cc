// Reductions in the order of ranks: the same bits for the same inputs, whatever the transport, the
// cut or the order of arrival. Rank r owns chunk r: it keeps the chunk of every other rank apart
// until it has all, adds them as x0 + x1 + x2 + …, and gives the sum away.
//
// all_reduce  To every other rank.
//               steps 5(p-1) or one more   bytes sent per rank 2(p-1)/p * n
//               latency of 2 messages once all are under way
// reduce      To the root.
//               steps at most 4p - 3   bytes sent per rank n   latency as above
// Both take scratch of (p-1)/p * n, and serve CallOptions::deterministic. Direct all-reduce
// (direct.cc) with another order of reduction.
#include "comm/algorithm/families.h"

namespace motley {
namespace {

// The steps after which rank r has the sum in chunk r.
class OrderedScatter {
 public:
  explicit OrderedScatter(const Shape& shape)
      : rank_(shape.rank),
        size_(shape.size),
        messages_(2 * (size_ - 1)),
        // Rank 0 adds to its own chunk, the others to that of rank 0, which they copy in the end.
        sums_(rank_ == 0 ? size_ - 1 : size_) {}

  int steps() const { return messages_ + sums_; }
  Step at(int i) const {
    if (i >= messages_) {
      const int j = i - messages_ + 1;
      if (j == size_) return {Step::kCopy, 0, term(0), 1, rank_};
      return {Step::kReduce, 0, term(j), 1, term(0)};
    }
    const int to = (rank_ + i / 2 + 1) % size_;
    const int from = (rank_ + size_ - i / 2 - 1) % size_;
    return i % 2 == 0 ? Step{Step::kSend, to, to, 1} : Step{Step::kRecv, from, term(from), 1};
  }
  Schedule schedule(int steps, std::function<Step(int)> at) const {
    return {.chunks = 2 * size_ - 1,
            .steps = steps,
            .at = std::move(at),
            .scratch = size_ - 1,
            .scratch_like = [rank = rank_](int) { return rank; }};
  }

 private:
  // Where the term of rank j is.
  int term(int j) const { return j == rank_ ? rank_ : size_ + j - (j > rank_ ? 1 : 0); }

  int rank_;
  int size_;
  int messages_;
  int sums_;
};

}  // namespace

Schedule ordered_all_reduce(const Shape& shape) {
  const OrderedScatter scatter(shape);
  const auto at = [=, rank = shape.rank, size = shape.size](int i) -> Step {
    if (i < scatter.steps()) return scatter.at(i);
    const int distance = (i - scatter.steps()) / 2 + 1;
    if ((i - scatter.steps()) % 2 == 0) return {Step::kSend, (rank + distance) % size, rank, 1};
    const int from = (rank + size - distance) % size;
    return {Step::kRecv, from, from, 1};
  };
  return scatter.schedule(scatter.steps() + 2 * (shape.size - 1), at);
}

Schedule ordered_reduce(const Shape& shape) {
  const OrderedScatter scatter(shape);
  const bool is_root = shape.rank == shape.root;
  const auto at = [=](int i) -> Step {
    if (i < scatter.steps()) return scatter.at(i);
    if (!is_root) return {Step::kSend, shape.root, shape.rank, 1};
    const int from = (shape.root + 1 + i - scatter.steps()) % shape.size;
    return {Step::kRecv, from, from, 1};
  };
  return scatter.schedule(scatter.steps() + (is_root ? shape.size - 1 : 1), at);
}

}  // namespace motley
