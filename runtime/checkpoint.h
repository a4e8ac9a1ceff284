// runtime/checkpoint.h: saving a state and going on from it, on the same or another number of
// workers.
//
//   Checkpointer checkpoints("run/checkpoints", comm, {.keep = 3});
//   State state;                                             // state.h: all that there is to save
//   if (const auto loaded = checkpoints.load(state)) step = loaded->step;
//   for (; step < steps; ++step) {
//     train(step);
//     if (step % 1000 == 0) checkpoints.save(state, step);   // copies; written in the background
//     checkpoints.poll();
//   }
//   checkpoints.wait();
//
// One job saves in a folder: worker 0 holds the file "lock" in it from its first save on, until the
// checkpointer is destroyed. autosave.h does all this by itself. Every worker makes these calls, in
// the same order, on a folder that all of them see, from the thread that uses the communicator. An
// error of one worker is thrown on all.
//
// A checkpoint is complete or not there, whenever the power is cut: each worker writes a part,
// under a name never used before; worker 0 then writes the index, which names them and has their
// checksums. Each file is written under another name, synced, renamed, and its folder synced. The
// files, for checkpoint 7 of 4 workers:
//   00000007.part-2-of-4   one line of text, "motley checkpoint 7, part 2 of 4, version 1\n"; then
//                          for each item, in order: elements [count * 2 / 4, count * 3 / 4) if the
//                          item is shared (is_shared()), all of a kOwned one if this is the first
//                          worker that has it, else all of this worker's own
//   00000007.index         the line "motley checkpoint index 1", 1 being the version; a line of
//   JSON
//                          with number, step, byte order, items (name, shape, dtype, policy), and
//                          for each part its bytes and CRC-32; the line "crc32 xxxxxxxx", of all
//                          before it
// Files that have been cut, damaged, or belong to something else give an error that names them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "runtime/file_system.h"
#include "runtime/state.h"

namespace motley::runtime {

struct CheckpointOptions {
  int keep = 3;  // complete checkpoints that remain; at least 1. Removed once the next is complete
  // Before saving, compare the checksums of shared items, as parts of unequal copies would make a
  // model that no worker had. Costs a read of the whole state; for one worker nothing.
  bool compare = true;
  bool lock = true;  // the folder, against other jobs; false where there is no flock()
  Duration timeout = seconds(600);  // of each wait: for the disk, and for other workers
  FileSystem* files = nullptr;      // LocalFiles, if null; must outlive the checkpointer
};

struct LoadOptions {
  bool fall_back = false;   // past damaged checkpoints to the newest that is whole
  std::int64_t number = 0;  // of 00000007.index it is 7; the newest, if 0. Fall back from there
};

struct Loaded {
  std::int64_t step = 0;    // that save() was given
  int workers = 0;          // that saved it
  std::string path;         // of the index
  std::string passed_over;  // what was wrong with newer ones, if any was passed over
};
// "run/00000007.index: step 700, saved by 4 workers", and what was passed over.
std::string to_text(const Loaded& loaded);

class Checkpointer {
 public:
  // For one worker, and for all of `comm`, which must outlive the checkpointer. Touches no file.
  // Throws kInvalid for a bad option.
  explicit Checkpointer(std::string folder, const CheckpointOptions& options = {});
  Checkpointer(std::string folder, Communicator& comm, const CheckpointOptions& options = {});
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;
  // Waits for what this worker writes. With several workers a checkpoint becomes complete in
  // poll() or wait(), so call wait() before.
  ~Checkpointer();

  // Takes a copy of this worker's share and of its own items, and begins to write it. Waits for the
  // save before, if that is still under way, and throws its error, if it had one, saving nothing.
  //   state   host memory; the same items on all workers, the shared ones with equal values (after
  //           an average of all workers)
  //   cost    a copy of 1/p of the state; its checksums (CheckpointOptions::compare); two small
  //           collectives
  //   errors  kInvalid for device memory; kMismatch, naming the item, where workers disagree;
  //           kUnavailable while another job saves in this folder
  void save(const State& state, std::int64_t step);
  // Goes on with a save that is under way, without waiting for the disk; to be called often, as
  // after each step. True if none is under way any more. Throws, once, the error of a save that
  // failed; the checkpoints before it are still there.
  //   cost    nothing if none is under way, else an all-reduce of one number
  bool poll();
  // The same, until none is under way.
  void wait();

  // Reads the newest checkpoint, or the one asked for, into the memory that `state` lists; nullopt
  // if there is none. All of it is read and checked before any is changed.
  //   state   the items that were saved: same names, shapes, dtypes and policies. Of those that are
  //           not shared: kKeepOwn goes to the worker of the same rank, new ones keep what they
  //           have; kSum does so for as many workers, else worker 0 gets the total, others 0;
  //           kOwned goes to every worker that now lists it with data, whoever had it
  //   errors  kInvalid for files that are damaged or foreign, and, whatever the options, for a
  //           state that is not the one saved and for a number that is not there; kIo for what the
  //           system refuses
  std::optional<Loaded> load(const State& state, const LoadOptions& options = {});

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::runtime
