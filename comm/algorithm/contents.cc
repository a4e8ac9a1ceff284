#include "comm/algorithm/contents.h"

#include <fmt/format.h>

namespace motley {
namespace {

// How many different blocks one rank has or gets.
int blocks_of(CallKind kind, int size, int shares) {
  switch (kind) {
    case CallKind::kReduceScatter:
    case CallKind::kScatter:
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return size;
    case CallKind::kAllReduce:
    case CallKind::kReduce:
    case CallKind::kBroadcast:
      return shares;
    default:
      return 1;
  }
}

}  // namespace

Contents::Contents(CallKind kind, int size, int root, int shares)
    : kind_(kind), size_(size), root_(root), symbols_(size, blocks_of(kind, size, shares)) {}

int Contents::initial(int rank, int chunk) const {
  const Place at = place(rank, chunk);
  switch (kind_) {
    case CallKind::kBarrier:
      return Symbols::kNothing;
    case CallKind::kBroadcast:
      return rank == root_ ? symbols_.leaf(rank, at.block) : Symbols::kNothing;
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return at.block == rank ? symbols_.leaf(rank, 0) : Symbols::kNothing;
    case CallKind::kGather:
      return at.where == Place::kIn || at.block == rank ? symbols_.leaf(rank, 0)
                                                        : Symbols::kNothing;
    default:
      return at.where == Place::kOut ? Symbols::kNothing : symbols_.leaf(rank, at.block);
  }
}

int Contents::size_class(int rank, int chunk) const {
  const Place at = place(rank, chunk);
  if (kind_ == CallKind::kAllToAllV) {
    const bool in = at.where == Place::kIn;
    return (in ? rank : at.block) * size_ + (in ? at.block : rank);
  }
  const bool alike = kind_ == CallKind::kBarrier || (at.where != Place::kShare && !varies(kind_));
  return alike ? 0 : at.block;
}

std::string Contents::flaw(int rank, int chunk, int symbol, int first) const {
  const Place at = place(rank, chunk);
  if (at.where == Place::kIn) return {};  // only read
  switch (kind_) {
    case CallKind::kAllReduce: {
      const std::string flaw = sum_flaw(symbol, at.block);
      if (!flaw.empty() || symbol == first) return flaw;
      return "reduced in another order than on rank 0";
    }
    case CallKind::kReduce:
      return rank == root_ ? sum_flaw(symbol, at.block) : "";
    case CallKind::kReduceScatter:
      return sum_flaw(symbol, rank);
    case CallKind::kBroadcast:
      return copy_flaw(symbol, root_, at.block);
    case CallKind::kScatter:
      return copy_flaw(symbol, root_, rank);
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return copy_flaw(symbol, at.block, rank);
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
    case CallKind::kGather:
      return copy_flaw(symbol, at.block, 0);
    case CallKind::kSendRecv:
      return copy_flaw(symbol, 0, 0);
    case CallKind::kBarrier:
      break;
  }
  return {};
}

std::string Contents::sum_flaw(int symbol, int block) const {
  if (symbol == Symbols::kNothing) return "never written";
  if (symbols_.block(symbol) != block) return fmt::format("that is not of block {}", block);
  for (int other = 0; other < size_; ++other) {
    if (!symbols_.has(symbol, other)) return fmt::format("without the term of rank {}", other);
    if (symbols_.has_twice(symbol, other))
      return fmt::format("with the term of rank {} more than once", other);
  }
  return {};
}

std::string Contents::copy_flaw(int symbol, int from, int block) const {
  if (symbol == Symbols::kNothing) return "never written";
  if (symbol != symbols_.leaf(from, block))
    return fmt::format("other than block {} of rank {}", block, from);
  return {};
}

}  // namespace motley
