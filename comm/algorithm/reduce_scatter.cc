// Reduce-scatter: rank r ends with the sum of everybody's block r. Blocks of `in` are only read.
//
// direct   Every block goes straight to its owner. In round i a rank sends to rank + i and receives
//          from rank - i.
//            steps 1 + 2(p-1)   bytes sent per rank (p-1)/p * n, n of all blocks
//            latency of 1 message once all are under way
//            best where every pair has a link of its own
// ring     Block b sets out from rank b + 1 and collects a term at each rank on its way round to b.
//            steps 3(p-1)   bytes as direct   latency of p-1 messages
//            best for long blocks where only neighbours have good links
//   Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
// halving  For any p. A rank holds partial sums of blocks r, r+1, …, s'-1 places on; in each round
//          it hands the farther half of them, from s = ceil(s'/2) places on, to rank r + s, whose
//          own first ones they are, until it holds block r alone.
//            steps 2 + 2 ceil(log2 p)   bytes as direct, and a copy of `in`
//            latency of ceil(log2 p) messages   best for short and middling blocks
//   Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms", arXiv 2410.14234.
// ordered  As direct, but the owner keeps the terms apart until it has all, and adds them in the
//          order of ranks: x0 + x1 + x2 + …
//            steps 3p - 2   bytes and latency as direct   for the same bits whatever the transport
#include "comm/algorithm/families.h"
#include "comm/algorithm/halvings.h"

namespace motley {

Schedule direct_reduce_scatter(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    if (i == 0) return {Step::kCopy, 0, rank, 1, size};
    const int distance = (i + 1) / 2;
    const int to = (rank + distance) % size;
    if (i % 2 == 1) return {Step::kSend, to, to, 1};
    return {Step::kRecvReduce, (rank + size - distance) % size, size, 1};
  };
  return {.chunks = shape.size + 1, .steps = 2 * shape.size - 1, .at = at};
}

Schedule ring_reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return direct_reduce_scatter(shape);
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    const int round = i / 3;
    // What comes in: the own block in the last round; others pass through two chunks of scratch.
    const int block = (rank + 2 * size - 2 - round) % size;
    const int into = round == size - 2 ? size : size + 1 + round % 2;
    if (i % 3 == 0) return {Step::kCopy, 0, block, 1, into};
    if (i % 3 == 2) return {Step::kRecvReduce, (rank + size - 1) % size, into, 1};
    const int from = round == 0 ? (rank + size - 1) % size : size + 1 + (round - 1) % 2;
    return {Step::kSend, (rank + 1) % size, from, 1};
  };
  return {.chunks = shape.size + 3, .steps = 3 * (shape.size - 1), .at = at, .scratch = 2};
}

Schedule halving_reduce_scatter(const Shape& shape) {
  const int rank = shape.rank;
  const int size = shape.size;
  const int rounds = halvings(size);
  const auto at = [=](int i) -> Step {  // block rank + j is worked on in chunk size + j
    if (i == 0) return {Step::kCopy, 0, rank, size - rank, size};
    if (i == 1) return {Step::kCopy, 0, 0, rank, 2 * size - rank};
    const int round = (i - 2) / 2;
    const int held = after_halvings(size, round);
    const int kept = after_halvings(size, round + 1);
    if (i % 2 == 0) return {Step::kSend, (rank + kept) % size, size + kept, held - kept};
    return {Step::kRecvReduce, (rank + size - kept) % size, size, held - kept};
  };
  return {.chunks = 2 * size,
          .steps = 2 + 2 * rounds,
          .max_step_chunks = size == 1 ? 1 : size / 2,
          .at = at,
          .scratch = size - 1};
}

Schedule ordered_reduce_scatter(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    // The term of rank j waits in scratch, or is the own block of `in`.
    const auto term = [=](int j) { return j == rank ? rank : size + 1 + j - (j > rank ? 1 : 0); };
    if (i < 2 * (size - 1)) {
      const int distance = i / 2 + 1;
      const int to = (rank + distance) % size;
      if (i % 2 == 0) return {Step::kSend, to, to, 1};
      const int from = (rank + size - distance) % size;
      return {Step::kRecv, from, term(from), 1};
    }
    const int j = i - 2 * (size - 1);
    return {j == 0 ? Step::kCopy : Step::kReduce, 0, term(j), 1, size};
  };
  return {
      .chunks = 2 * shape.size, .steps = 3 * shape.size - 2, .at = at, .scratch = shape.size - 1};
}

}  // namespace motley
