// wide/sharded_run.h: training of models that are larger than one worker: each keeps a part of the
// features' weights, and what the optimizer has beside them.
//
//   ShardedRun run(comm, RowParts({"train.txt"}, {}), read_file("valid.txt"),
//                  {.batch_rows = 8192});
//   while (run.next_step()) {}
//   run.save("train.model");          // all workers call it; the first that lives writes
//
// Every worker calls it with the same files and options, and reads and holds its parts of the
// training rows. A step has batch_rows rows for each worker; each takes those that it holds, asks
// the keepers of their features for weights, and sends them the batch's gradients; a keeper steps
// each weight once, by the sum of all. The most frequent features, which all workers need all the
// time, are everybody's: their gradients are added up by an all-reduce. So all rows of a step see
// the same weights: the model is that of one worker with batches of all these rows, but for
// rounding.
//
// Weights of the next step come while this one computes, but for those that it changes (or, with
// Pulls::kOneStepOld, all of them, as they were before it).
//
// With ShardOptions::partial nobody waits for a slow worker: each makes steps at its own pace, on
// the rows that it holds, over and over, until all together have made an epoch's rows: the rows of
// fast workers count more. Keepers answer while they compute, with weights as they are, and step
// by each worker's gradients when they come; hot features are averaged with the workers that are
// ready. So it is not the model of one worker, nor the same each time. All wait for each other at
// the end of an epoch, for a step or two of the slowest.
//
// Death: each shard has ShardOptions::copies keepers, which step it alike, by sums of gradients
// that the first of them sends the others. Where a worker dies, the others take the step that it
// was in back, where they had made it, and make it again without it: nothing that was learnt before
// is lost. Its shards go on from their copies, of which new ones are made. Where all keepers of a
// shard have died, kPeerLost is thrown; then, and where all die, training has to begin anew, or
// from a model that was saved. The rows of the dead are read again by those that live.
//
// With `partial` keepers tell copies the states of features that have changed, after as many
// batches of gradients, anyone's, as there are workers, or when the message before has arrived, if
// that is later; at the end of an epoch copies are exact. Where a worker dies, lost are: in its own
// features what they were stepped by since the last message that arrived was made; there, too, the
// gradients of the step that each of the others has under way (of two, with Pulls::kOneStepOld); of
// all others the gradients of its own step under way; and of the hot ones those of its steps that
// it had averaged with nobody yet. All else is kept. The others end their steps, meet, go on from
// copies and make new ones; rows that the dead one had made of the epoch, they make again.
//
// Each worker holds its parts of the data set (and the whole, where it was read whole and a death
// would not end training), the dictionary (12 bytes a feature), 16 bytes for each row of all,
// validation data, and of the state its copies of shards, hot features and the slots of two
// batches. save() needs no more; before the first step the lists of all workers' distinct features,
// 12 bytes each, are put together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/partial_reduce.h"
#include "wide/row_parts.h"
#include "wide/trainer.h"

namespace motley::wide {

enum class Pulls : std::uint8_t {
  kExact,       // weights as the step before left them
  kOneStepOld,  // as they were before it: none has to be waited for
};

// The same on all workers.
struct ShardOptions {
  std::uint64_t hot = 4096;  // most frequent features, which every worker has
  int copies = 2;            // workers that keep a shard; 1: a death ends training
  Pulls pulls = Pulls::kExact;
  // Workers do not wait for each other, and hot features are averaged so. Pulls::kExact then means:
  // after this worker's own gradients have gone.
  std::optional<PartialOptions> partial;
  // With `partial`: a keeper leaves out gradients of weights after which each of the others has
  // made more steps than so many, on average; 1 to 1e9.
  std::int64_t staleness = 16;
  // Called with the number of a step, from 0: before this worker computes, when weights of the step
  // behind it have come (by another thread), and before it is applied.
  std::function<void(std::int64_t step)> on_compute, on_ahead, on_apply;
};

// Bytes that this worker has sent to others; of the all-reduce those of its buffer.
struct ShardTraffic {
  std::uint64_t keys = 0;           // with the numbers of edges, and what is late
  std::uint64_t early_weights = 0;  // while the step before computed
  std::uint64_t late_weights = 0;   // with `partial`: all
  std::uint64_t gradients = 0;
  std::uint64_t copies = 0;  // for those that keep them: sums of gradients; with `partial` states
  std::uint64_t hot = 0;
};

class ShardedRun {
 public:
  // Options as TrainingRun takes them, but that rank and size are those of `comm`, batch_rows (at
  // least 2) are a worker's in each step, and the CPU trains, without prior and averages. Throws
  // kInvalid as that does, and where options of shards are out of range.
  ShardedRun(Communicator& comm, RowParts train, std::optional<Dataset> validation,
             const TrainOptions& options, const ShardOptions& shards = {});
  ShardedRun(ShardedRun&&) noexcept;
  ~ShardedRun();

  // One step of all workers; with `partial` of this one: they make different numbers of steps.
  // False, and nothing done, once training is over. Throws kInvalid when the loss is no longer
  // finite; kPeerLost as said above; what comm's calls throw.
  bool next_step();

  std::int64_t step() const noexcept;    // steps made
  int epoch() const noexcept;            // epochs begun
  double running_loss() const noexcept;  // of this worker's rows of this epoch
  std::uint64_t rows_trained() const noexcept;
  std::uint64_t rows_planned() const noexcept;
  const std::vector<EpochReport>& reports() const noexcept;
  int best_epoch() const noexcept;
  const std::vector<int>& workers() const noexcept;  // that live
  std::size_t features() const noexcept;
  ShardTraffic traffic() const noexcept;
  // Batches of any worker whose gradients were too old for this one, as a keeper.
  std::uint64_t left_out() const noexcept;
  // Distinct slots that this worker's batches have asked others or itself for, all steps together.
  std::uint64_t slots_asked() const noexcept;

  // Writes the model as Model::save() does; all living workers call it. With `partial` they meet in
  // it, as they have to before an end of training that is not the last epoch's.
  void save(const std::string& path);
  // The whole state (Layout) on the first of the living workers, empty on the others: for tests.
  std::vector<float> gather_state();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::wide
