#include "comm/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "comm/error.h"

namespace motley {

std::string scope_text(const GroupTag& tag) {
  constexpr std::uint64_t kRankBits = 31;
  constexpr std::uint64_t kRank = (std::uint64_t{1} << kRankBits) - 1;
  if (tag.is_pair())
    return fmt::format(" from rank {} to {}", tag.id >> kRankBits & kRank, tag.id & kRank);
  if (tag.id == 0) return "";
  return fmt::format(" of group {}.{}", tag.id & ~GroupTag::kControllerBit, tag.attempt);
}

Group::Group(std::vector<int> ranks, GroupTag tag) : ranks_(std::move(ranks)), tag_(tag) {
  if (ranks_.empty())
    throw Error(ErrorCode::kInvalid, "group: it has no ranks. Name at least one.");
  std::vector<int> sorted = ranks_;
  std::sort(sorted.begin(), sorted.end());
  if (sorted.front() < 0) {
    throw Error(ErrorCode::kInvalid, fmt::format("group: rank {} is negative.", sorted.front()));
  }
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("group: rank {} is listed twice. List each member once.", *twice));
  }
}

Group Group::world(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return Group(std::move(ranks));
}

int Group::index_of(int rank) const noexcept {
  // The world group, and any other that starts with 0, 1, 2, …, is found without a search.
  if (rank >= 0 && rank < size() && ranks_[static_cast<std::size_t>(rank)] == rank) return rank;
  const auto it = std::find(ranks_.begin(), ranks_.end(), rank);
  return it == ranks_.end() ? -1 : static_cast<int>(it - ranks_.begin());
}

void Group::use_by(int rank) const {
  int user = user_.rank.load(std::memory_order_relaxed);
  if (user == rank) return;
  if (user == -1 && user_.rank.compare_exchange_strong(user, rank, std::memory_order_relaxed))
    return;
  if (user == rank) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("group: ranks {} and {} are threads that call on one Group value, which "
                          "counts the calls of one rank. Give each a copy of its own, made before "
                          "the first call.",
                          user, rank));
}

}  // namespace motley
