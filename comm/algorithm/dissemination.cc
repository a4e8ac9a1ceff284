// Dissemination barrier. In round k a rank tells rank + 2^k that it, and everyone it has heard of,
// has arrived; after log2 p rounds everyone has heard of everyone. The messages are chunk 0 of a
// buffer without elements: a round's send waits for the receive of the round before because both
// touch that chunk.
//   steps 2 ceil(log2 p)   bytes none   latency of ceil(log2 p) messages
// Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization", IJPP 1988.
#include <bit>

#include "comm/algorithm/families.h"

namespace motley {

Schedule dissemination_barrier(const Shape& shape) {
  const int rank = shape.rank;
  const int size = shape.size;
  const int rounds = std::bit_width(static_cast<unsigned>(size - 1));
  const auto at = [rank, size](int i) -> Step {
    const int distance = 1 << (i / 2);
    if (i % 2 == 0) return {Step::kSend, (rank + distance) % size, 0, 1};
    return {Step::kRecv, (rank + size - distance) % size, 0, 1};
  };
  return {.chunks = 1, .steps = 2 * rounds, .max_step_chunks = 1, .at = at};
}

}  // namespace motley
