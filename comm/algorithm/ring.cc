// Ring all-reduce. Each of the p chunks goes round the ring twice: once collecting a term from
// every rank (reduce-scatter), once delivering the sum to every rank (all-gather). Chunk c sets out
// from rank c and is complete at rank c - 1.
//   steps 4(p-1)   bytes sent per rank 2(p-1)/p * n   latency of 2(p-1) messages
//   best for large n where only neighbours have good links: a flat or shared network
// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
#include "comm/algorithm/families.h"

namespace motley {

Schedule ring_all_reduce(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    const int round = i / 2;  // the chunk sent was received in the round before
    const int sent = (rank + 2 * size - round) % size;
    if (i % 2 == 0) return {Step::kSend, (rank + 1) % size, sent, 1};
    const int received = (sent + size - 1) % size;
    const bool scatter = round < size - 1;
    return {scatter ? Step::kRecvReduce : Step::kRecv, (rank + size - 1) % size, received, 1};
  };
  return {.chunks = shape.size, .steps = 4 * (shape.size - 1), .max_step_chunks = 1, .at = at};
}

}  // namespace motley
