// comm/algorithm/schedule.h: a collective as data.
//
// A schedule says what one rank does: steps over chunks, in order. It is a pure function of
// (rank, size), produced step by step on demand, so that a ring of 2,048 ranks is never stored. One
// executor runs it on any transport; check.h proves a family correct; cost.h prices it.
//
// Meaning, once for all. The buffer is cut into `chunks` equal chunks (the last ones may be shorter
// or empty).
// 1. Steps start in order. Step i starts when all steps up to i - window have finished, and a send
//    also not before the earlier receives that touch its chunks have finished.
// 2. Messages between two ranks match in order: the k-th send to a rank belongs to that rank's k-th
//    receive from here, and moves the same chunks.
// 3. A send finishes when its data has been taken. It may be synchronous: taken only once the
//    receive is posted. So a rank sends and receives in pairs, or in an order without cycles.
// 4. A receive takes effect, and finishes, when its message is there and all earlier steps that
//    touch its chunks have finished, sends that read them among them.
// So every rank's chunks change as if its steps ran one by one, and what a message carries does not
// depend on timing. Schedules complete with a window of 2 and synchronous sends (check.h proves
// it); every chunk is reduced in one place and one order, so that all ranks end with the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/call_kind.h"

namespace motley {

struct Step {
  enum Kind : std::uint8_t {
    kSend,        // chunks go to `peer`
    kRecv,        // chunks are overwritten by what `peer` sends
    kRecvReduce,  // chunks become op(chunk, what `peer` sends)
  };
  Kind kind = kSend;
  int peer = 0;         // index in the group
  int first_chunk = 0;  // chunks [first_chunk, first_chunk + chunk_count)
  int chunk_count = 0;  // 0: an empty message that touches no chunk and so waits for none
  friend bool operator==(const Step&, const Step&) = default;
};

struct Schedule {
  int chunks = 1;           // the buffer is cut into so many
  int steps = 0;            // at(i) for i in [0, steps)
  int max_step_chunks = 1;  // most chunks that one step moves; like `chunks`, the same on all ranks
  std::function<Step(int)> at;

  // A schedule from a list of steps: for tests, and for algorithms that are short anyway.
  static Schedule from_steps(int chunks, std::vector<Step> steps);
};

// "send chunk 3 to 2", "recv+reduce chunks 4..7 from 0".
std::string to_text(const Step& step);
// One line per step.
std::string to_text(const Schedule& schedule);

// A family of schedules, one per (rank, size), for size >= 1. `root` matters to broadcast only.
// at(i) costs O(1) or O(log size); nothing is stored. With one rank there are no steps.
struct Algorithm {
  const char* name;
  Schedule (*make)(int rank, int size, int root);
};

Schedule direct_all_reduce(int rank, int size);
Schedule ring_all_reduce(int rank, int size);
Schedule halving_doubling_all_reduce(int rank, int size);
Schedule tree_broadcast(int rank, int size, int root);
Schedule dissemination_barrier(int rank, int size);

// All families of a collective; the position is what Fingerprint::algorithm carries.
const std::vector<Algorithm>& all_reduce_algorithms();
const std::vector<Algorithm>& broadcast_algorithms();
const std::vector<Algorithm>& barrier_algorithms();
const std::vector<Algorithm>& algorithms_of(CallKind kind);

}  // namespace motley
