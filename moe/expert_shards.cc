#include "moe/expert_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "comm/error.h"
#include "moe/expert/slot.h"

namespace motley::moe {
namespace {

// Rows of a matrix, each of which begins `in_row` or `out_row` numbers behind the one before.
struct RowCopy {
  const float* in = nullptr;
  std::size_t in_row = 0;
  float* out = nullptr;
  std::size_t out_row = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;
};

void copy(const RowCopy& c) {
  for (std::size_t r = 0; r < c.rows; ++r) {
    std::copy_n(c.in + r * c.in_row, c.columns, c.out + r * c.out_row);
  }
}

}  // namespace

ExpertShape shard_of(ExpertShape whole, int shards) {
  if (shards < 1 || whole.hidden % shards != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe experts: {} hidden numbers cannot be cut into {} equal shards. "
                            "hidden must be a multiple of shards.",
                            whole.hidden, shards));
  }
  whole.hidden /= shards;
  return whole;
}

void cut_shard(const ExpertShape& whole, ExpertShard at, std::span<const float> slot,
               std::span<float> out) {
  const ExpertShape part = shard_of(whole, at.shards);
  assert(slot.size() == whole.slot_count() && out.size() == part.slot_count());
  const auto d = static_cast<std::size_t>(whole.width);
  const auto h = static_cast<std::size_t>(whole.hidden), n = static_cast<std::size_t>(part.hidden);
  const std::size_t first = static_cast<std::size_t>(at.shard) * n;
  const expert::Slot<const float> from(slot.data(), whole);
  const expert::Slot<float> to(out.data(), part);
  std::copy_n(from.w1 + first * d, n * d, to.w1);
  std::copy_n(from.b1 + first, n, to.b1);
  copy({from.w2 + first, h, to.w2, n, d, n});
  if (at.shard == 0) {
    std::copy_n(from.b2, d, to.b2);
  } else {
    std::fill_n(to.b2, d, 0.0f);
  }
  if (from.w3 == nullptr) return;
  std::copy_n(from.w3 + first * d, n * d, to.w3);
  std::copy_n(from.b3 + first, n, to.b3);
}

void paste_shard(const ExpertShape& whole, ExpertShard at, std::span<const float> shard,
                 std::span<float> slot) {
  const ExpertShape part = shard_of(whole, at.shards);
  assert(slot.size() == whole.slot_count() && shard.size() == part.slot_count());
  const auto d = static_cast<std::size_t>(whole.width);
  const auto h = static_cast<std::size_t>(whole.hidden), n = static_cast<std::size_t>(part.hidden);
  const std::size_t first = static_cast<std::size_t>(at.shard) * n;
  const expert::Slot<const float> from(shard.data(), part);
  const expert::Slot<float> to(slot.data(), whole);
  std::copy_n(from.w1, n * d, to.w1 + first * d);
  std::copy_n(from.b1, n, to.b1 + first);
  copy({from.w2, n, to.w2 + first, h, d, n});
  if (at.shard == 0) std::copy_n(from.b2, d, to.b2);
  if (from.w3 == nullptr) return;
  std::copy_n(from.w3, n * d, to.w3 + first * d);
  std::copy_n(from.b3, n, to.b3 + first);
}

}  // namespace motley::moe
