// Direct all-reduce. Rank r owns chunk r: it collects the chunk from every other rank (reduce-
// scatter), then gives the sum to every other rank (all-gather). In round i a rank sends to
// rank + i and receives from rank - i, so that no rank is sent to by two at a time.
//   steps 4(p-1)   bytes sent per rank 2(p-1)/p * n   latency of 2 messages once all are under way
//   best where every pair of ranks has a link of its own: threads of a host, a switch, small groups
// Rabenseifner's two phases with pairwise exchange (Thakur, Rabenseifner and Gropp, "Optimization
// of collective communication operations in MPICH", IJHPCA 2005, sections 4.3 and 4.4).
#include "comm/algorithm/families.h"

namespace motley {

Schedule direct_all_reduce(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    const bool scatter = i < 2 * (size - 1);
    const int distance = (scatter ? i : i - 2 * (size - 1)) / 2 + 1;
    if (i % 2 == 0) {
      const int to = (rank + distance) % size;
      return {Step::kSend, to, scatter ? to : rank, 1};
    }
    const int from = (rank + size - distance) % size;
    return scatter ? Step{Step::kRecvReduce, from, rank, 1} : Step{Step::kRecv, from, from, 1};
  };
  return {.chunks = shape.size, .steps = 4 * (shape.size - 1), .max_step_chunks = 1, .at = at};
}

}  // namespace motley
