// test/support/nccl_stand_in.h: NCCL's entry points without devices. Ranks are threads of one
// process; streams and memory are those of device_emulated.h. Real bytes are moved, and as with
// NCCL whatever does not match hangs until it is aborted.
//
// What NCCL leaves undefined is a fault here, noted by name: calls that do not match, a circle of
// ranks that wait for each other, use of a communicator after its end, of one that has not settled,
// from two threads at once, a group that another thread ends, operations or communicators left
// behind.
//
// Stricter than NCCL: a send waits for its receive, and what a group asked for enters the stream
// only when ncclCommGetAsyncError has said that it has. Minima and maxima of floats lose NaN.
#pragma once

#include <string>
#include <vector>

namespace motley::test {

// Forgets everything; no communicator may be in use.
void reset_nccl_stand_in();

// What was found wrong so far, each once.
std::vector<std::string> nccl_faults();

struct NcclUse {
  int made = 0;        // communicators of all ranks, ever
  int alive = 0;       // those not ended
  int operations = 0;  // of weighted sums, alive
  int launches = 0;    // groups that entered a stream
  friend bool operator==(const NcclUse&, const NcclUse&) = default;
};
NcclUse nccl_use();

// The launch of `rank` that is the `number`-th from now on, 0 being the next, reports an
// asynchronous error and never ends.
void break_nccl_launch(int rank, int number);

// ncclCommInitRankConfig fails on `rank` from now on.
void break_nccl_init(int rank);

}  // namespace motley::test
