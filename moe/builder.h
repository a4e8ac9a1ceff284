// moe/builder.h: makes the programs (program.h) of a layer. A strategy that orders or cuts the work
// in another way is another builder; what its operations do stays the same.
//
//   TokenAllToAll builder({.lane = lane_of(comm.topology())});
//   const Program forward = builder.forward(shape, exchange.rows());
//
// All ranks build with equal shapes and options, so that their programs are alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "comm/topology.h"
#include "moe/placement.h"
#include "moe/program.h"
#include "moe/rank_rows.h"

namespace motley::moe {

// Of a layer, as far as it costs time.
struct LayerShape {
  int width = 0;     // numbers per token
  int hidden = 0;    // of a physical expert
  int matrices = 2;  // of an expert: 3 where it has a gate of its own (SwiGLU)
  std::size_t value_bytes = 4;
};

// What all ranks send in a step, of which one is to be known.
struct RowCounts {
  const Placement& placement;
  std::span<const std::int64_t> counts;  // [ranks, physical experts], rows from each for each
  int rank = 0;                          // to be known
  std::int64_t tokens = 0;               // of that rank
  int degree = 1;                        // as in ExchangeOptions
  std::size_t piece_rows = 512;
};
// As an exchange of kind flat would cut them. Throws kInvalid if the counts are not of the
// placement's size or negative, or the rank is not in it.
RankRows rows_of(const RowCounts& counts);

// The lane of calls among all ranks of a topology.
Lane lane_of(const Topology& topology);

class Builder {
 public:
  virtual ~Builder() = default;
  virtual std::string name() const = 0;
  // Throws kInvalid for rows that are not of one layer: sizes and ranks that do not fit, or
  // negative numbers.
  virtual Program forward(const LayerShape& shape, const RankRows& rows) const = 0;
  virtual Program backward(const LayerShape& shape, const RankRows& rows) const = 0;
};

struct TokenAllToAllOptions {
  Lane lane = Lane::kIntraHost;
  std::string algorithm = {};  // of comm's all_to_all_v; empty: chosen
};

// Tokens go to their experts and come back, chunk by chunk as the rows are cut:
//   encode, dispatch, experts, combine;   then once: decode
// Rows are packed for all chunks first, then experts computed in order of chunks; dispatches come
// before combines. That is the order of least time for two lanes: Shi et al., "ScheMoE", EuroSys
// 2024, theorem 1. Backward is the same with gradients; those of weights are worked out while the
// first chunks travel, those of parameters, of all chunks at once, while the last do, so that
// chunks change no bit.
class TokenAllToAll final : public Builder {
 public:
  // Throws kInvalid for a lane that does not talk.
  explicit TokenAllToAll(TokenAllToAllOptions options);

  std::string name() const override;
  Program forward(const LayerShape& shape, const RankRows& rows) const override;
  Program backward(const LayerShape& shape, const RankRows& rows) const override;

 private:
  struct Kinds;
  struct Chain;
  Chain add_chunk(Program& program, const LayerShape& shape, const RankRows& rows,
                  const Kinds& kinds, const Chain& before) const;
  Program build(const LayerShape& shape, const RankRows& rows, const Kinds& kinds) const;

  TokenAllToAllOptions options_;
};

}  // namespace motley::moe
