#include "wide/shard/start.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "comm/error.h"
#include "wide/defaults.h"
#include "wide/fresh_state.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr std::int64_t kMaxStaleness = 1'000'000'000;  // of each of any number of others

Model bare_model(RowFacts& facts, const TrainOptions& options) {
  ModelOptions model = options.model;
  model.seed = options.seed;
  model.initial_accumulator = options.initial_accumulator;
  Model bare = Model::bare(model, std::move(facts.dictionary),
                           has_fields(model.kind) ? facts.fields : std::vector<std::uint32_t>());
  bare.set_recipe(facts.recipe);
  return bare;
}

[[noreturn]] void refuse(const char* what, double value, const char* range) {
  throw Error(ErrorCode::kInvalid,
              fmt::format("train sharded: {} is {}, but must be {}", what, value, range));
}

TrainOptions settled_for_shards(TrainOptions o, const ShardOptions& shards, double features,
                                bool validates) {
  o.rank = 0;
  o.size = 1;
  if (o.batch_rows < 2) refuse("batch_rows", static_cast<double>(o.batch_rows), "at least 2");
  if (shards.copies < 1) refuse("copies", shards.copies, "at least 1");
  if (shards.partial) {
    if (shards.staleness < 1 || shards.staleness > kMaxStaleness)
      refuse("staleness", static_cast<double>(shards.staleness), "from 1 to 1e9");
  }
  if (o.prior_factors > 0) {
    refuse("the prior of factors (--prior)", static_cast<double>(o.prior_factors), "0");
  }
  if (o.average > 0) {
    refuse("the average of states (--average)", static_cast<double>(o.average), "0");
  }
  if (o.processor != Processor::kCpu) {
    throw Error(ErrorCode::kInvalid, "train sharded: only the CPU does so. Leave the device out");
  }
  o.prior_factors = 0;
  o.average = 0;
  return settled(std::move(o), features, validates);
}

}  // namespace

Start::Start(RowFacts facts, const TrainOptions& given, const ShardOptions& shards, bool validates)
    : options(settled_for_shards(given, shards, facts.mean_features, validates)),
      model(bare_model(facts, options)) {
  const Layout& layout = model.layout();
  shared.resize(layout.shared * layout.planes);
  FreshState(model.options(), layout).shared(shared.data());
  begin_at_mean(model.options(), facts.mean_label, shared.data());
  model.set_offset(std::log(options.negative_rate));
}

}  // namespace motley::wide
