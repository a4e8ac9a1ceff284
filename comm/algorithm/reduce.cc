// Reduce: the root ends with the sum of everybody's buffer.
//
// tree            A binomial tree, ranks counted from the root: each rank adds what its children
//                 have, nearest first, and hands the sum to its parent.
//                   steps at most 1 + log2 p   bytes sent per rank n   latency of log2 p messages
//                   best for short n; long n is cut into pieces by the executor, which overlap
// scatter_gather  Rank r collects chunk r from all and hands the sum to the root.
//                   steps 2(p-1) + 1, the root 3(p-1)   bytes sent per rank n
//                   latency of 2 messages once all are under way   best for long n
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004.
#include "comm/algorithm/binomial.h"
#include "comm/algorithm/families.h"

namespace motley {

Schedule tree_reduce(const Shape& shape) {
  const int size = shape.size;
  const int root = shape.root;
  const Binomial tree((shape.rank - root + size) % size, size);
  const auto at = [=](int i) -> Step {
    if (i < tree.children) return {Step::kRecvReduce, (root + tree.child(i)) % size, 0, 1};
    return {Step::kSend, (root + tree.parent) % size, 0, 1};
  };
  return {.steps = tree.children + (tree.parent < 0 ? 0 : 1), .at = at};
}

Schedule scatter_gather_reduce(const Shape& shape) {
  const int rank = shape.rank;
  const int size = shape.size;
  const int root = shape.root;
  const int scatter = 2 * (size - 1);
  const auto at = [=](int i) -> Step {
    if (i >= scatter) {
      if (rank != root) return {Step::kSend, root, rank, 1};
      const int from = (root + 1 + i - scatter) % size;
      return {Step::kRecv, from, from, 1};
    }
    const int distance = i / 2 + 1;
    const int to = (rank + distance) % size;
    if (i % 2 == 0) return {Step::kSend, to, to, 1};
    return {Step::kRecvReduce, (rank + size - distance) % size, rank, 1};
  };
  const int gather = rank == root ? size - 1 : 1;
  return {.chunks = size, .steps = size == 1 ? 0 : scatter + gather, .at = at};
}

}  // namespace motley
