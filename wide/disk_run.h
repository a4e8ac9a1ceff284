// wide/disk_run.h: training from disk, on data larger than memory.
//
//   DiskRows rows({"day_0.gz", "day_1.gz"}, "parts", {.rows_of_part = 100'000});
//   DiskRun run(std::move(rows), read_file("valid.txt"), {.epochs = 5});
//   while (run.next_step()) {}
//   run.model().save("train.model");
//
// Text is read once and kept as parts: binary caches (cache.h) of a folder, in which features are
// numbered by frequency as the model will have them. In an epoch parts come in an order drawn anew,
// and their rows by groups of neighbours, drawn anew, too; a thread reads the next part while this
// one is learnt. In memory are two parts, the model, its dictionary, and validation data.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "wide/reader.h"
#include "wide/trainer.h"

namespace motley::wide {

class PartsFolder;

struct DiskOptions {
  ReadOptions read;                    // of the files
  std::size_t rows_of_part = 100'000;  // at least
  std::uint64_t seed = 1;              // of the order of rows in a part
};

// Rows in parts on disk, and what has to be known of all of them.
class DiskRows {
 public:
  // Reads `files` and makes `folder`, which is removed in the end. What a run that was killed left
  // there is removed before. Throws as RowStream does; kIo where there is no room; kInvalid where
  // the folder is in use by a run, or holds what no run put there.
  DiskRows(const std::vector<std::string>& files, const std::string& folder,
           const DiskOptions& options = {});
  DiskRows(DiskRows&&) noexcept;
  ~DiskRows();

  std::size_t rows() const noexcept { return rows_; }
  std::size_t parts() const noexcept { return parts_; }
  double label_sum() const noexcept { return label_sum_; }
  const std::string& recipe() const noexcept { return recipe_; }
  // Slots by falling number of entries; fields, ascending, if rows have them.
  const Dictionary& dictionary() const noexcept { return dictionary_; }
  const std::vector<std::uint32_t>& fields() const noexcept { return fields_; }
  // No row has a feature twice.
  bool distinct() const noexcept { return distinct_; }
  // Part i, with slots for ids, in the memory of `room`. Any thread.
  Dataset part(std::size_t i, Dataset room = {}) const;
  // Asks the system to read the first `bytes` of part i in good time. Returns how many it has.
  std::uint64_t want(std::size_t i, std::uint64_t bytes) const;
  // In memory, of the largest part; and what this process may use.
  std::uint64_t part_bytes() const noexcept { return part_bytes_; }
  std::uint64_t memory_limit() const noexcept { return limit_; }

 private:
  void check_first(const std::vector<std::string>& files, const DiskOptions& options) const;
  void keep(const std::vector<std::string>& files, const DiskOptions& options);
  void number(const DiskOptions& options);
  std::string path(std::size_t part) const;

  std::unique_ptr<PartsFolder> folder_;
  std::size_t rows_ = 0, parts_ = 0;
  std::uint64_t limit_, part_bytes_ = 0;
  double label_sum_ = 0;
  bool distinct_ = true;
  std::string recipe_;
  Dictionary dictionary_;
  std::vector<std::uint32_t> fields_;
};

class DiskRun {
 public:
  // Options as TrainingRun's; of one worker, on the CPU, and all rows as they are (positive_weight
  // and negative_rate 1), without prior and averages.
  DiskRun(DiskRows rows, std::optional<Dataset> validation, const TrainOptions& options);
  ~DiskRun();

  // Learns the next part. False, and nothing done, once training is over. Throws kInvalid when the
  // loss is no longer finite.
  bool next_step();

  int epoch() const noexcept { return epoch_; }
  double running_loss() const noexcept {
    return learnt_ > 0 ? loss_ / static_cast<double>(learnt_) : 0;
  }
  std::uint64_t rows_trained() const noexcept { return rows_trained_; }
  std::uint64_t rows_planned() const noexcept {
    return static_cast<std::uint64_t>(options_.epochs) * rows_.rows();
  }
  const std::vector<EpochReport>& reports() const noexcept { return reports_; }
  int best_epoch() const noexcept { return best_.epoch(); }
  Model& model() noexcept { return model_; }
  const Model& model() const noexcept { return model_; }

 private:
  std::optional<Evaluation> validate() const;
  void begin_epoch();
  void end_epoch();
  void read_ahead();

  DiskRows rows_;
  TrainOptions options_;
  Model model_;
  std::optional<Samples> validation_;
  std::unique_ptr<Flow> flow_;
  std::vector<std::uint64_t> order_;  // of parts, in this epoch
  std::size_t next_part_ = 0;         // in order_, that will be learnt
  int epoch_ = 0;
  double loss_ = 0;           // of the epoch so far
  std::uint64_t learnt_ = 0;  // rows of it
  std::uint64_t rows_trained_ = 0;
  std::vector<EpochReport> reports_;
  BestEpoch best_;
  std::vector<float> best_state_;
  bool done_ = false;
  Dataset spare_;               // memory of the part that was learnt last
  std::future<Samples> ahead_;  // the next part; the last member, which waits for its thread
};

}  // namespace motley::wide
