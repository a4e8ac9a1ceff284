// Halving-doubling all-reduce. With q ranks, a power of two: log2 q exchanges with the ranks at
// distance 1, 2, 4, …, in each of which the partners split what they still hold and reduce a half
// each (reduce-scatter by halving); then the same exchanges backwards, in which they join what they
// have (all-gather by doubling). The longest messages go to the nearest ranks. If p is not a power
// of two, the first 2(p - q) ranks form pairs: the odd one hands its data to the even one before
// and gets the result after.
//   steps 4 log2 q (+ 2)   bytes sent per rank 2(q-1)/q * n (+ n)
//   latency of 2 log2 q (+ 2) messages
//   best for short and middling n; for long n only if p is a power of two
// Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur, Rabenseifner
// and Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005.
#include <bit>

#include "comm/algorithm/families.h"

namespace motley {
namespace {

// The ranks that take part in the exchanges, numbered from 0.
struct Core {
  int size = 1;    // the largest power of two that is not above the number of ranks
  int levels = 0;  // log2(size)
  int pairs = 0;   // ranks 2i and 2i + 1 are one in the core, for i < pairs

  explicit Core(int ranks)
      : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)))),
        levels(std::countr_zero(static_cast<unsigned>(size))),
        pairs(ranks - size) {}

  int index_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  int rank_of(int index) const { return index < pairs ? 2 * index : index + pairs; }

  // First chunk of the size >> level chunks that `index` holds after `level` halvings.
  int first_chunk(int index, int level) const {
    int first = 0;
    for (int i = 0; i < level; ++i) {
      if ((index >> i & 1) != 0) first += size >> (i + 1);
    }
    return first;
  }

  // Step `i` of the 4 * levels that exchange: each level sends, then receives.
  Step exchange(int index, int i) const {
    const bool halving = i < 2 * levels;
    const int level = halving ? i / 2 : 2 * levels - 1 - i / 2;
    const int partner = index ^ (1 << level);
    const int mine = first_chunk(index, level + 1);
    const int theirs = first_chunk(partner, level + 1);
    const int count = size >> (level + 1);
    if (i % 2 == 0) return {Step::kSend, rank_of(partner), halving ? theirs : mine, count};
    if (halving) return {Step::kRecvReduce, rank_of(partner), mine, count};
    return {Step::kRecv, rank_of(partner), theirs, count};
  }
};

}  // namespace

Schedule halving_doubling_all_reduce(const Shape& shape) {
  const int rank = shape.rank;
  const Core core(shape.size);
  const int chunks = core.size;
  const bool paired = rank < 2 * core.pairs;
  if (paired && rank % 2 == 1) {
    return Schedule::from_steps(
        chunks, {{Step::kSend, rank - 1, 0, chunks}, {Step::kRecv, rank - 1, 0, chunks}});
  }
  const int steps = 4 * core.levels + (paired ? 2 : 0);
  const auto at = [=, index = core.index_of(rank)](int i) -> Step {
    if (!paired) return core.exchange(index, i);
    if (i == 0) return {Step::kRecvReduce, rank + 1, 0, chunks};
    if (i == steps - 1) return {Step::kSend, rank + 1, 0, chunks};
    return core.exchange(index, i - 1);
  };
  // The same on all ranks of a size, for buffers are cut by it.
  const int most = core.pairs > 0 || chunks == 1 ? chunks : chunks / 2;
  return {.chunks = chunks, .steps = steps, .max_step_chunks = most, .at = at};
}

}  // namespace motley
