// moe/builder.h: makes the programs (program.h) of a layer. A strategy that orders or cuts the work
// in another way is another builder; what its operations do stays the same.
//
//   TokenAllToAll builder({.degree = 2, .lane = lane_of(comm.topology())});
//   const Program forward = builder.forward(shape, rows);      // rows: of this rank's plan
//
// All ranks build with equal shapes and options, so that their programs are alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/topology.h"
#include "moe/placement.h"
#include "moe/plan.h"
#include "moe/program.h"

namespace motley::moe {

// Of a layer, as far as it costs time.
struct LayerShape {
  int width = 0;     // numbers per token
  int hidden = 0;    // of a physical expert
  int matrices = 2;  // of an expert: 3 where it has a gate of its own (SwiGLU)
  std::size_t value_bytes = 4;
};

// Of one rank in one step: what it sends and gets.
struct RankRows {
  int rank = 0;
  std::int64_t tokens = 0;
  std::vector<std::vector<std::int64_t>> sent;      // [ranks][experts of that rank]
  std::vector<std::vector<std::int64_t>> received;  // [ranks][experts of this rank]
};

// Of a plan, and what every rank sends to each of this one's experts, [ranks, mine]: as for
// make_receive_plan(). Throws kInvalid if those are not of the placement's sizes.
RankRows rows_of(const Plan& plan, const Placement& placement,
                 std::span<const std::int64_t> counts);

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
  int degree = 1;  // chunks of the pipeline, at least 1
  Lane lane = Lane::kIntraHost;
  std::string algorithm = {};  // of comm's all_to_all_v; empty: chosen
};

// Tokens go to their experts and come back. Each rank's experts are dealt into `degree` chunks, in
// order: chunk c of n has experts [c * mine / n, (c + 1) * mine / n), so that every expert's rows
// are multiplied at once, whatever the degree, which so changes no bit. Chunk by chunk
//   encode, dispatch, experts, combine;   then once: decode
// Rows are packed for all chunks first, then experts computed in order of chunks; dispatches come
// before combines. That is the order of least time for two lanes: Shi et al., "ScheMoE", EuroSys
// 2024, theorem 1. Backward is the same with gradients.
class TokenAllToAll final : public Builder {
 public:
  // Throws kInvalid for a degree below 1 and a lane that does not talk.
  explicit TokenAllToAll(TokenAllToAllOptions options);

  std::string name() const override;
  Program forward(const LayerShape& shape, const RankRows& rows) const override;
  Program backward(const LayerShape& shape, const RankRows& rows) const override;

 private:
  struct Kinds;
  Program build(const LayerShape& shape, const RankRows& rows, const Kinds& kinds) const;

  TokenAllToAllOptions options_;
};

// Experts [first, first + count) of `mine` that are in chunk `chunk` of `degree`.
struct ChunkRange {
  std::size_t first = 0;
  std::size_t count = 0;
};
ChunkRange chunk_range(std::size_t mine, int chunk, int degree);

}  // namespace motley::moe
