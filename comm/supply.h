// comm/supply.h: numbers handed out to ranks, each counted exactly once.
//
//   Supply samples(comm, "epoch 3", {.count = 60'000});
//   for (Range part = samples.next(64); part.count() > 0; part = samples.next(64)) {
//     train_on(part);
//     samples.count(part);
//   }                         // here every sample has been counted, by somebody
//   samples.give_back();      // a rank that leaves before: others get what it did not count
//
// Ranks take what they are fast enough for; one that comes later just begins to take. What a rank
// holds when it leaves, ends or dies goes to others. Numbers are handed out in ascending order,
// what was given back first. The controller keeps the list; a rank asks it once for many numbers,
// for fewer towards the end, so that nobody waits long for the last. Should the controller die, the
// one in its place hears from the ranks how far they were; what a rank that died with it had
// counted since any other asked is handed out again, as is that of one that does not come back in
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley {

class Communicator;

// Numbers [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const noexcept { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

struct SupplyOptions {
  std::int64_t count = 0;     // numbers 0 to count - 1; the same on all ranks
  std::int64_t claim = 4096;  // taken from the controller at a time, at most
  // Those that are left of it, where a supply is gone on with; if not set, all.
  std::optional<std::vector<Range>> uncounted;
  Duration timeout{};  // of each wait; Options::timeout of the communicator if zero
};

// One thread at a time.
class Supply {
 public:
  // The supply called `name`; the first rank that names it makes it. `comm` must outlive it.
  //   errors  kInvalid for a count below 0, and for ranges that overlap or are outside; kMismatch
  //           if another rank passed another count
  Supply(Communicator& comm, std::string name, const SupplyOptions& options);
  Supply(Supply&&) noexcept;
  ~Supply();  // tries to give back; if that fails the controller does it when this rank ends

  // At most `most` numbers for this rank, which has counted what it got before. Waits while none is
  // to be had, but some are not counted yet; empty once all are.
  //   errors  kTimeout; kPeerLost where the controller is gone; kAborted where this rank counts as
  //           dead
  Range next(std::int64_t most);
  // This rank is done with `part`, all or some of what next() gave it. Told to the controller when
  // this rank holds no more, or asks for more.
  //   errors  kInvalid if it was not given to this rank, or was counted; else as next()
  void count(Range part);
  // Others get what this rank holds and has not counted.
  void give_back();

  // What nobody has counted, ascending: for a checkpoint. Tells what this rank has counted; what
  // others have is left out as far as they have told it.
  std::vector<Range> uncounted();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
