// Pairwise all-to-all. The ranks form pairs, other ones in each round; partners exchange their
// blocks. If p is a power of two, round i joins ranks whose numbers differ in the bits of i, so
// that neighbours come first; else ranks whose numbers add up to i, in which one or two ranks rest.
//   steps 2(p-1) + 1   bytes sent per rank (p-1)/p * n, each once   p - 1 messages, p rounds
//   best for long blocks where a link should carry both directions of one exchange at a time
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005, section 4.4; rounds for any p: the circle method for tournaments.
#include <bit>

#include "comm/algorithm/families.h"

namespace motley {

Schedule pairwise_all_to_all(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    if (i == 0) return {Step::kCopy, 0, rank, 1, size + rank};
    const int round = (i + 1) / 2;  // from 1; that in which the rank would meet itself is left out
    int partner = rank ^ round;
    if (!std::has_single_bit(static_cast<unsigned>(size))) {
      const int itself = 2 * rank % size;
      partner = ((round - 1 < itself ? round - 1 : round) + size - rank) % size;
    }
    if (i % 2 == 1) return {Step::kSend, partner, partner, 1};
    return {Step::kRecv, partner, size + partner, 1};
  };
  return {.chunks = 2 * shape.size, .steps = 2 * shape.size - 1, .max_step_chunks = 1, .at = at};
}

}  // namespace motley
