// comm/algorithm/schedule.h: a collective as data.
//
// A schedule says what one rank does: steps over chunks, in order. It is a pure function of
// Shape, produced step by step on demand, so that a ring of 2,048 ranks is never stored. One
// executor runs it on any transport; check.h proves a family correct; cost.h prices it.
//
// Meaning, once for all. What a rank works on is cut into chunks, numbered from 0; what each is,
// place_of() says. Chunks of `in` are only read. The last chunks may be scratch: memory of the
// library, without contents at first.
// 1. Steps start in order. Step i starts when all steps up to i - window have finished, and a send
//    also not before the earlier steps that write its chunks have finished.
// 2. Messages between two ranks match in order: the k-th send to a rank belongs to that rank's k-th
//    receive from here. Sender and receiver may number its chunks differently; the sizes are equal
//    chunk by chunk.
// 3. A send finishes when its data has been taken. It may be synchronous: taken only once the
//    receive is posted. So a rank sends and receives in pairs, or in an order without cycles.
// 4. A receive takes effect, and finishes, when its message is there and all earlier steps that
//    touch its chunks have finished, sends that read them among them. Copies and reductions within
//    a rank do so when the earlier steps that write what they read, or touch what they write, have.
// So every rank's chunks change as if its steps ran one by one, and what a message carries does not
// depend on timing. Schedules complete with a window of 2 and synchronous sends (check.h proves
// it); every element is reduced in one place and one order, so that all ranks end with the same
// bits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/call_kind.h"

namespace motley {

class Topology;

// What a schedule is made from.
struct Shape {
  int rank = 0;  // whose schedule; index in the group
  int size = 1;  // of the group
  int root = 0;  // index in the group, for has_root(kind)
  // Hosts and links of the group's ranks, numbered by index; equal on all ranks. Null: all alike.
  // Read while the schedule is made; later it may be gone.
  const Topology* topology = nullptr;
};

struct Step {
  enum Kind : std::uint8_t {
    kSend,        // chunks go to `peer`
    kRecv,        // chunks are overwritten by what `peer` sends
    kRecvReduce,  // chunks become op(chunk, what `peer` sends)
    kCopy,        // as many chunks from `to_chunk` on are overwritten by the chunks
    kReduce,      // as many chunks from `to_chunk` on become op(chunk there, chunk here)
  };
  Kind kind = kSend;
  int peer = 0;         // index in the group; of no matter within a rank
  int first_chunk = 0;  // chunks [first_chunk, first_chunk + chunk_count)
  int chunk_count = 0;  // 0: an empty message that touches no chunk and so waits for none
  int to_chunk = 0;     // kCopy, kReduce

  bool is_local() const noexcept { return kind >= kCopy; }
  bool is_receive() const noexcept { return kind == kRecv || kind == kRecvReduce; }
  // The first chunk written, chunk_count in all; a send writes none.
  int first_written() const noexcept { return is_local() ? to_chunk : first_chunk; }
  friend bool operator==(const Step&, const Step&) = default;
};

// Whether the order of two steps matters: one writes a chunk that the other reads or writes.
bool conflict(const Step& a, const Step& b) noexcept;

struct Schedule {
  int chunks = 1;           // scratch included
  int steps = 0;            // at(i) for i in [0, steps)
  int max_step_chunks = 1;  // most chunks that a message moves in any rank's schedule
  std::function<Step(int)> at;
  int scratch = 0;  // the last so many chunks are scratch
  // The chunk that is no scratch and as large as scratch chunk i, counted from 0. Null: chunk 0.
  std::function<int(int)> scratch_like;
  // The shares of the chunks in a buffer that is cut (Place::kShare); empty: equal. The same on all
  // ranks, one for each chunk that is no scratch; the sum is below 2^32.
  std::vector<std::uint32_t> weights;

  int first_scratch() const noexcept { return chunks - scratch; }
  // The chunk, no scratch, that is as large as `chunk`.
  int sized_as(int chunk) const;
  // A schedule from a list of steps: for tests, and for algorithms that are short anyway.
  static Schedule from_steps(int chunks, std::vector<Step> steps);
};

// What a chunk that is no scratch is, by kind of call; p = size, r = rank. The executor copies to
// `out` first what of it comes from this rank's `in`.
//   all_reduce, broadcast, reduce  any number: shares of one buffer, which `in` is copied to first
//   reduce_scatter                 0..p-1: blocks of `in`; p: `out`
//   all_gather(_v)                 0..p-1: blocks of `out`, of which r is copied from `in` first
//   gather    root                 0..p-1: blocks of `out`, of which r is copied from `in` first
//             others               0: `in`
//   scatter   root                 0..p-1: blocks of `in`; p: `out`
//             others               0: `out`
//   all_to_all(_v)                 0..p-1: blocks of `in`, by receiver; p..2p-1: `out`, by sender
//   send_recv                      0: `in` of rank 0, `out` of rank 1
//   barrier                        any number, of no element
struct Place {
  enum Where : std::uint8_t { kShare, kIn, kOut };
  Where where = kShare;
  int block = 0;
  friend bool operator==(const Place&, const Place&) = default;
};
Place place_of(CallKind kind, const Shape& shape, int chunk) noexcept;
// How many chunks that are no scratch a schedule must have; 0: any number.
int fixed_chunks(CallKind kind, const Shape& shape) noexcept;

// "send chunk 3 to 2", "recv+reduce chunks 4..7 from 0", "copy chunk 1 to chunk 4".
std::string to_text(const Step& step);
// One line per step.
std::string to_text(const Schedule& schedule);

// A family of schedules, one per shape. at(i) costs O(1) or O(log size); nothing is stored. With
// one rank there are no messages.
struct Algorithm {
  const char* name;
  Schedule (*make)(const Shape& shape);
  // Whether it may be cheaper than all others: what chooses asks. Null: yes. It is right anyway.
  bool (*suits)(const Shape& shape) = nullptr;
  // Where blocks vary, a rank that passes others' blocks on cannot know how long they are. Such a
  // family moves their heads, all padded to one length (executor/layout.h), as if they were blocks
  // of all_to_all; this one moves what is left of those that are longer. Null: blocks are not cut.
  Schedule (*rest)(const Shape& shape) = nullptr;

  // The kind whose rules its schedules follow.
  CallKind moves_as(CallKind kind) const noexcept {
    return rest != nullptr ? CallKind::kAllToAll : kind;
  }
};

}  // namespace motley
