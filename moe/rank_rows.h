// moe/rank_rows.h: how many rows of a step one rank sends, gets and computes on, chunk by chunk:
// what a Builder (builder.h) makes a program from. An Exchange tells those of a step under way,
// rows_of() of builder.h those of any rank of any step whose counts are known.
#pragma once

#include <cstdint>
#include <vector>

namespace motley::moe {

// To and from each rank, its own too: [ranks].
struct RowExchange {
  std::vector<std::int64_t> sent;
  std::vector<std::int64_t> received;
};

// Of one chunk of the pipeline.
struct ChunkRows {
  RowExchange dispatch;
  RowExchange combine;
  std::vector<std::int64_t> products;  // rows of each segment, which an expert multiplies at once
};

struct RankRows {
  int rank = 0;
  std::int64_t tokens = 0;
  std::vector<ChunkRows> chunks;
};

}  // namespace motley::moe
