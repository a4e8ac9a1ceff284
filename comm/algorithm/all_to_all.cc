// Direct all-to-all. In round i a rank sends its block for rank + i and receives that of rank - i,
// so that no rank is sent to by two at a time. Blocks may differ in size.
//   steps 2p-1   bytes sent per rank (p-1)/p * n, each once   latency of 1 message once all are
//   under way   best for long blocks, and for few ranks
// Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
// IJHPCA 2005, section 4.
#include "comm/algorithm/families.h"

namespace motley {

Schedule direct_all_to_all(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    if (i == 0) return {Step::kCopy, 0, rank, 1, size + rank};
    const int distance = (i + 1) / 2;
    const int to = (rank + distance) % size;
    if (i % 2 == 1) return {Step::kSend, to, to, 1};
    const int from = (rank + size - distance) % size;
    return {Step::kRecv, from, size + from, 1};
  };
  return {.chunks = 2 * shape.size, .steps = 2 * shape.size - 1, .max_step_chunks = 1, .at = at};
}

}  // namespace motley
