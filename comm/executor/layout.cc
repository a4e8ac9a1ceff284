#include "comm/executor/layout.h"

#include <algorithm>
#include <numeric>

namespace motley {
namespace {

// Elements of the buffer that is cut, or of each block; no matter where blocks differ.
std::size_t count_of(const Call& call, const Shape& shape) {
  switch (call.kind) {
    case CallKind::kAllReduce:
    case CallKind::kBroadcast:
    case CallKind::kReduceScatter:
    case CallKind::kScatter:
      return call.out.count;
    case CallKind::kAllToAll:
      return call.in.count / static_cast<std::size_t>(shape.size);
    case CallKind::kSendRecv:
      return shape.rank == 0 ? call.in.count : call.out.count;
    default:
      return call.in.count;
  }
}

std::vector<std::size_t> firsts(const std::vector<std::size_t>& counts) {
  std::vector<std::size_t> sums(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), sums.begin(), std::size_t{0});
  return sums;
}

std::size_t ceil_div(std::size_t a, std::size_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

Layout::Layout(const Call& call, const Shape& shape, const Schedule& schedule, DType work,
               std::size_t message_bytes, Heads heads)
    : call_(call),
      shape_(shape),
      schedule_(schedule),
      cut_(place_of(call.kind, shape, 0).where == Place::kShare),
      n_(count_of(call, shape)),
      in_first_(firsts(call.in_counts)),
      out_first_(firsts(call.out_counts)) {
  const std::size_t segment = std::max<std::size_t>(
      1, message_bytes / size_bytes(work) / static_cast<std::size_t>(schedule.max_step_chunks));
  const bool converts = work != call.out.dtype;
  const bool from_device = call.in.memory == Memory::kDevice;
  if (cut_) {
    staged_[Place::kShare] = converts || call.on_device() ||
                             (call.kind == CallKind::kReduce && shape.rank != shape.root);
    cut_into_pieces(segment);
  } else {
    const bool exchange = call.kind == CallKind::kAllToAll || call.kind == CallKind::kAllToAllV;
    const bool scales = reduces(call.kind) && call.op == ReduceOp::kWeightedSum;
    staged_[Place::kIn] = converts || scales || from_device || call.direct ||
                          (exchange && overlap(call.in, call.out));
    staged_[Place::kOut] = converts || call.direct || call.out.memory == Memory::kDevice ||
                           (gathers(call.kind) && from_device) ||
                           (call.kind == CallKind::kReduceScatter && overlap(call.in, call.out));
    if (heads == Heads::kFirst) {
      cut_heads(message_bytes, size_bytes(work));
      return;
    }
    cut_blocks(segment);
  }
  lane_elements_ = scratch_base_ + static_cast<std::size_t>(schedule.scratch) * stride_;
}

void Layout::cut_into_pieces(std::size_t segment) {
  const auto chunks = static_cast<std::size_t>(schedule_.first_scratch());
  std::size_t largest = segment * chunks;
  if (!schedule_.weights.empty()) {
    share_sum_.push_back(0);
    for (const std::uint32_t weight : schedule_.weights)
      share_sum_.push_back(share_sum_.back() + weight);
    const auto most = *std::max_element(schedule_.weights.begin(), schedule_.weights.end());
    largest = std::max<std::size_t>(1, segment * share_sum_.back() / std::max(most, 1u));
  }
  pieces_ = static_cast<std::uint32_t>(std::max<std::size_t>(1, ceil_div(n_, largest)));
  piece_size_ = ceil_div(n_, pieces_);
  const std::size_t whole = std::min(n_, piece_size_);
  std::size_t end = 0;
  for (int i = 0; schedule_.scratch > 0 && i < schedule_.first_scratch(); ++i) {
    const std::size_t next = share_end(whole, i);
    stride_ = std::max(stride_, next - end);
    end = next;
    if (schedule_.weights.empty()) break;  // the first is the largest
  }
  if (!schedule_.weights.empty()) ++stride_;  // shorter pieces may round otherwise
  scratch_base_ = staged_[Place::kShare] ? whole : 0;
}

std::size_t Layout::longest_block() const {
  std::size_t longest = 0;
  for (const auto* counts : {&call_.in_counts, &call_.out_counts}) {
    for (const std::size_t count : *counts) longest = std::max(longest, count);
  }
  return longest;
}

// What is left of blocks goes straight to where it belongs, one block a message.
void Layout::cut_heads(std::size_t message_bytes, std::size_t element_bytes) {
  front_ = kCountBytes / element_bytes;
  const std::size_t most =
      message_bytes / element_bytes / static_cast<std::size_t>(schedule_.max_step_chunks);
  const std::size_t wanted = front_ + kHeadBytes / element_bytes;
  head_ = std::max(front_ + 1, std::min(wanted, most));
  piece_size_ = std::max<std::size_t>(1, message_bytes / element_bytes);
  const std::size_t longest = longest_block();
  const std::size_t rest = longest - std::min(longest, head_ - front_);
  pieces_ = static_cast<std::uint32_t>(1 + ceil_div(rest, piece_size_));
  stride_ = std::min(piece_size_, rest);
  in_blocks_ = staged_blocks(Place::kIn);
  lane_elements_ = std::max(static_cast<std::size_t>(schedule_.chunks) * head_,
                            (in_blocks_ + staged_blocks(Place::kOut)) * stride_);
}

void Layout::cut_blocks(std::size_t segment) {
  const std::size_t largest = varies(call_.kind) ? longest_block() : n_;
  pieces_ = static_cast<std::uint32_t>(std::max<std::size_t>(1, ceil_div(largest, segment)));
  // Unequal blocks are cut by the same segments everywhere.
  piece_size_ = varies(call_.kind) ? segment : ceil_div(n_, pieces_);
  stride_ = std::min(piece_size_, largest);
  in_blocks_ = staged_blocks(Place::kIn);
  scratch_base_ = (in_blocks_ + staged_blocks(Place::kOut)) * stride_;
}

std::size_t Layout::staged_blocks(Place::Where where) const {
  int blocks = 0;
  for (int chunk = 0; staged_[where] && chunk < schedule_.first_scratch(); ++chunk)
    blocks += place_of(call_.kind, shape_, chunk).where == where;
  return static_cast<std::size_t>(blocks);
}

std::size_t Layout::share_end(std::size_t count, int chunk) const {
  const auto i = static_cast<std::size_t>(chunk) + 1;
  if (share_sum_.empty()) {
    return std::min(count,
                    i * ceil_div(count, static_cast<std::size_t>(schedule_.first_scratch())));
  }
  const std::uint64_t all = std::max<std::uint64_t>(1, share_sum_.back());
  return count / all * share_sum_[i] + count % all * share_sum_[i] / all;
}

std::size_t Layout::block_count(const Place& place) const {
  const auto& counts = place.where == Place::kIn ? call_.in_counts : call_.out_counts;
  return counts.empty() ? n_ : counts[static_cast<std::size_t>(place.block)];
}

std::size_t Layout::block_first(const Place& place) const {
  const auto& sums = place.where == Place::kIn ? in_first_ : out_first_;
  const auto block = static_cast<std::size_t>(place.block);
  return sums.empty() ? block * n_ : sums[block];
}

Region Layout::home(std::uint32_t piece, const Place& place) const {
  const std::size_t begin = std::size_t{piece} * piece_size_;
  if (place.where == Place::kShare) {
    const std::size_t first = std::min(n_, begin);
    return {Region::kOut, first, std::min(piece_size_, n_ - first)};
  }
  const std::size_t count = block_count(place);
  const std::size_t heads = head_ - front_;  // of each block; none without
  const std::size_t first = std::min(count, head_ == 0   ? begin
                                            : piece == 0 ? 0
                                                         : heads + begin - piece_size_);
  const std::size_t most = is_heads(piece) ? heads : piece_size_;
  return {place.where == Place::kIn ? Region::kIn : Region::kOut, block_first(place) + first,
          std::min(most, count - first)};
}

Region Layout::cut(std::uint32_t piece) const {
  const Region home = this->home(piece, {});
  return staged_[Place::kShare] ? Region{Region::kLane, 0, home.count} : home;
}

Region Layout::at(std::uint32_t piece, int chunk) const {
  if (is_heads(piece)) return {Region::kLane, static_cast<std::size_t>(chunk) * head_, head_};
  if (chunk >= schedule_.first_scratch()) {
    const auto index = static_cast<std::size_t>(chunk - schedule_.first_scratch());
    return {Region::kLane, scratch_base_ + index * stride_,
            at(piece, schedule_.sized_as(chunk)).count};
  }
  const Place place = place_of(call_.kind, shape_, chunk);
  if (cut_) {
    Region region = cut(piece);
    const std::size_t begin = chunk == 0 ? 0 : share_end(region.count, chunk - 1);
    const std::size_t end = share_end(region.count, chunk);
    return {region.where, region.first + begin, end - begin};
  }
  const Region region = home(piece, place);
  if (!staged_[place.where]) return region;
  const auto block = static_cast<std::size_t>(place.block);
  return {Region::kLane, (place.where == Place::kIn ? block : in_blocks_ + block) * stride_,
          region.count};
}

std::size_t Layout::total(int chunk) const {
  const int sized = schedule_.sized_as(chunk);
  return cut_ ? n_ : block_count(place_of(call_.kind, shape_, sized));
}

}  // namespace motley
