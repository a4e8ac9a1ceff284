// Broadcast by scatter and all-gather. Chunk i is for the i-th rank counted from the root: a
// binomial tree deals the chunks out, then each goes round the ring.
//   steps at most 1 + log2 p + 2(p-1)
//   bytes sent per rank at most (p-1)/p * n, by the root twice that
//   latency of log2 p + p - 1 messages   best for long n in large groups
// Van de Geijn's; Thakur, Rabenseifner and Gropp, "Optimization of collective communication
// operations in MPICH", IJHPCA 2005, section 4.2.
#include "comm/algorithm/binomial.h"
#include "comm/algorithm/families.h"

namespace motley {

Schedule scatter_gather_broadcast(const Shape& shape) {
  const int size = shape.size;
  const Binomial tree((shape.rank - shape.root + size) % size, size);
  const int receives = tree.parent < 0 ? 0 : 1;
  const int scatter = receives + tree.children;
  const auto at = [=, root = shape.root](int i) -> Step {
    const auto rank_of = [=](int index) { return (root + index) % size; };
    if (i < receives) return {Step::kRecv, rank_of(tree.parent), tree.index, tree.span};
    if (i < scatter) {
      const int k = scatter - 1 - i;  // the largest subtree first
      return {Step::kSend, rank_of(tree.child(k)), tree.child(k), tree.child_span(k)};
    }
    const int round = (i - scatter) / 2;
    const int sent = (tree.index + size - round) % size;
    if ((i - scatter) % 2 == 0) return {Step::kSend, rank_of(tree.index + 1), sent, 1};
    return {Step::kRecv, rank_of(tree.index + size - 1), (sent + size - 1) % size, 1};
  };
  return {.chunks = size,
          .steps = scatter + 2 * (size - 1),
          .max_step_chunks = largest_subtree(size),
          .at = at};
}

}  // namespace motley
