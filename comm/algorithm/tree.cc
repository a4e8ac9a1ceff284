// Trees. Ranks are counted from the root; a parent is as far from its children as powers of two.
//
// broadcast   In round k the 2^k ranks that have the data send it to as many more.
//               steps at most 1 + log2 p   bytes sent per rank at most log2 p * n
//               latency of log2 p messages
// all_reduce  The sum goes up a binomial tree to rank 0, and down again.
//               steps at most 2 (1 + log2 p)   bytes sent per rank at most (1 + log2 p) n
//               latency of 2 log2 p messages
// Best for short n; long n is cut into pieces by the executor, and the pieces overlap.
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005, section 4.2.
#include <bit>

#include "comm/algorithm/families.h"

namespace motley {

Schedule tree_broadcast(const Shape& shape) {
  const int size = shape.size;
  const int root = shape.root;
  const int index = (shape.rank - root + size) % size;  // the root's is 0
  const auto rank_of = [root, size](int i) { return (root + i) % size; };
  // Received in the round of the highest bit of `index`; sent in the rounds after it.
  const int first_round = std::bit_width(static_cast<unsigned>(index));
  const int last_round = std::bit_width(static_cast<unsigned>(size - index - 1));
  const int receives = index == 0 ? 0 : 1;
  const int sends = last_round > first_round ? last_round - first_round : 0;
  const auto at = [=](int i) -> Step {
    if (i < receives) return {Step::kRecv, rank_of(index - (1 << (first_round - 1))), 0, 1};
    return {Step::kSend, rank_of(index + (1 << (first_round + i - receives))), 0, 1};
  };
  return {.chunks = 1, .steps = receives + sends, .max_step_chunks = 1, .at = at};
}

Schedule tree_all_reduce(const Shape& shape) {
  const Shape from_zero{.rank = shape.rank, .size = shape.size};
  const Schedule up = tree_reduce(from_zero);
  const Schedule down = tree_broadcast(from_zero);
  const auto at = [up, down](int i) { return i < up.steps ? up.at(i) : down.at(i - up.steps); };
  return {.steps = up.steps + down.steps, .at = at};
}

}  // namespace motley
