// All-gather: every rank ends with everybody's block. Blocks may differ in size.
//
// direct    A rank sends its block to every other rank. In round i it sends to rank + i and
//           receives from rank - i.
//             steps 2(p-1)   bytes sent per rank (p-1) blocks
//             latency of 1 message once all are under way
//             best where every pair has a link of its own
// ring      A block is passed on from neighbour to neighbour.
//             steps 2(p-1)   bytes as direct   latency of p-1 messages
//             best for long blocks where only neighbours have good links
// doubling  For any p. A rank holds blocks r, r+1, …, s-1 places on, and in each round gets as many
//           more (but never more than p in all) from rank r + s, whose first ones they are.
//             steps at most 4 ceil(log2 p): blocks that go round the end take two messages
//             bytes as direct   latency of ceil(log2 p) messages   best for short blocks
//   Bruck et al., "Efficient algorithms for all-to-all communications in multiport message-passing
//   systems", TPDS 1997; with the sizes of Träff, arXiv 2410.14234.
#include <algorithm>

#include "comm/algorithm/families.h"
#include "comm/algorithm/halvings.h"

namespace motley {
namespace {

// Steps for `count` blocks from `first` on, which go on with block 0 after the last.
void add_round_the_end(std::vector<Step>& steps, int size, Step step) {
  const int before_end = std::min(step.chunk_count, size - step.first_chunk);
  const int after_end = step.chunk_count - before_end;
  step.chunk_count = before_end;
  steps.push_back(step);
  if (after_end == 0) return;
  step.first_chunk = 0;
  step.chunk_count = after_end;
  steps.push_back(step);
}

}  // namespace

Schedule direct_all_gather(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    const int distance = i / 2 + 1;
    if (i % 2 == 0) return {Step::kSend, (rank + distance) % size, rank, 1};
    const int from = (rank + size - distance) % size;
    return {Step::kRecv, from, from, 1};
  };
  return {.chunks = shape.size, .steps = 2 * (shape.size - 1), .at = at};
}

Schedule ring_all_gather(const Shape& shape) {
  const auto at = [rank = shape.rank, size = shape.size](int i) -> Step {
    const int sent = (rank + size - i / 2) % size;
    if (i % 2 == 0) return {Step::kSend, (rank + 1) % size, sent, 1};
    return {Step::kRecv, (rank + size - 1) % size, (sent + size - 1) % size, 1};
  };
  return {.chunks = shape.size, .steps = 2 * (shape.size - 1), .at = at};
}

Schedule doubling_all_gather(const Shape& shape) {
  const int rank = shape.rank;
  const int size = shape.size;
  std::vector<Step> steps;
  for (int round = halvings(size) - 1; round >= 0; --round) {
    const int held = after_halvings(size, round + 1);
    const int more = after_halvings(size, round) - held;
    const int to = (rank + size - held) % size;
    const int from = (rank + held) % size;
    add_round_the_end(steps, size, {Step::kSend, to, rank, more});
    add_round_the_end(steps, size, {Step::kRecv, from, from, more});
  }
  Schedule schedule = Schedule::from_steps(size, std::move(steps));
  schedule.max_step_chunks = size == 1 ? 1 : size / 2;  // the same on all ranks
  return schedule;
}

}  // namespace motley
