// wide/shard/shard_rows.h: the training rows of a sharded run, of which each worker reads and holds
// its parts; what all have to know of all rows is put together from them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "wide/model.h"
#include "wide/row_parts.h"
#include "wide/trainer.h"

namespace motley::wide {

// Of all rows that count.
struct RowFacts {
  double mean_label = 0, mean_features = 1;  // of a row (defaults.h)
  Dictionary dictionary;
  std::vector<std::uint32_t> fields;  // ascending
  std::string recipe;
};

class ShardRows {
 public:
  // All workers call it. Throws, on all, where one cannot read its parts, or no rows are left.
  ShardRows(Communicator& comm, RowParts source, const TrainOptions& options);

  // For the model, once.
  RowFacts take_facts() { return std::move(facts_); }
  std::uint64_t rows() const noexcept { return first_.back(); }  // of all workers, that count
  // Makes rows ready; all workers call it, with a model of the facts. Row i of those that held() is
  // asked for becomes row order[i] as read. `copies`: of shards; where there is one, or one worker,
  // hold() will not be called, and the source is let go.
  void prepare(const Model& model, std::vector<std::uint64_t> order, int copies);
  // No rows, but what is so of all.
  const Samples& shape() const noexcept { return shape_; }
  // Those of `rows` that are held here, in this order. Of all workers, each row is held by one.
  Samples held(std::span<const std::uint64_t> rows) const;
  // Whether row i of those is held here.
  bool holds(std::uint64_t i) const { return held_.contains(part_of(order_[i])); }
  // Where others have died: takes over its share of what they held. The same `alive`, ascending, on
  // all that live.
  void hold(const std::vector<int>& alive, const Model& model);

 private:
  static constexpr int kPartsOfWorker = 4;  // so that several take over those of one

  void read_own();
  void choose();
  void gather_facts();
  int part_of(std::uint64_t row) const;  // as read
  int holder(int part, const std::vector<int>& alive) const;
  int parts() const noexcept { return kPartsOfWorker * comm_.size(); }

  Communicator& comm_;
  std::optional<RowParts> source_;  // while rows may be read again
  TrainOptions options_;
  std::map<int, RowPart> read_;  // until prepare()
  // [parts + 1] rows of the parts before each: as read, and of those that count.
  std::vector<std::uint64_t> first_read_, first_;
  RowFacts facts_;
  std::vector<std::uint64_t> order_;
  std::map<int, Samples> held_;
  Samples shape_;
};

}  // namespace motley::wide
