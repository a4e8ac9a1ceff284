#include "comm/executor/piece_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "comm/error.h"

namespace motley {

void PieceAverage::begin(ConstView own) {
  cancel();
  own_ = own;
  done_.clear();
  pieces_.clear();
  const std::size_t most = std::max<std::size_t>(1, bytes_ / size_bytes(own.dtype));
  for (std::size_t end = own.count; end > 0;) {
    const std::size_t count = std::min(most, end);
    end -= count;
    pieces_.push_back({.first = end, .count = count, .missing = count});
  }
}

void PieceAverage::ready(std::size_t first, std::size_t count) {
  if (count == 0) return;
  const std::size_t end = first + count;
  auto next = done_.lower_bound(first);
  const bool before = next != done_.begin() && std::prev(next)->second > first;
  const bool after = next != done_.end() && next->first < end;
  if (end > own_.count || end < first || before || after) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("partial_reduce: elements {} to {} of {} are ready, but there are none "
                            "such, or they were before. Pass each once a step.",
                            first, end, own_.count));
  }
  done_[first] = end;
  for (Piece& piece : pieces_) {
    const std::size_t from = std::max(first, piece.first);
    const std::size_t to = std::min(end, piece.first + piece.count);
    if (from < to) piece.missing -= to - from;
  }
  start_complete();
}

void PieceAverage::ready_all() {
  done_ = {{0, own_.count}};
  for (Piece& piece : pieces_) piece.missing = 0;
  start_complete();
}

void PieceAverage::start(const Group& group, const AveragePlan& plan, View average,
                         Duration timeout) {
  cancel();
  group_ = group;
  plan_ = plan;
  average_ = average;
  timeout_ = timeout;
  start_complete();
}

void PieceAverage::start_complete() {
  if (!group_) return;
  while (requests_.size() < pieces_.size() && pieces_[requests_.size()].missing == 0) {
    const Piece& piece = pieces_[requests_.size()];
    requests_.push_back(begin_average(comm_, *group_, plan_, own_.slice(piece.first, piece.count),
                                      average_.slice(piece.first, piece.count), timeout_));
  }
}

bool PieceAverage::finish(bool finite) {
  if (requests_.size() < pieces_.size()) {
    const std::size_t missing = pieces_[requests_.size()].missing;
    cancel();
    throw Error(ErrorCode::kInvalid,
                fmt::format("partial_reduce: {} elements of a piece are not ready at the end. Call "
                            "ready() for all of the model.",
                            missing));
  }
  const auto me = static_cast<std::size_t>(group_->index_of(comm_.rank()));
  const std::vector<std::int8_t> own(1, finite || plan_.weights[me] == 0 ? 1 : 0);
  finite_.assign(static_cast<std::size_t>(group_->size()), 0);
  try {
    Request told = comm_.all_gather(own, finite_, {.group = &*group_, .timeout = timeout_});
    for (Request& request : requests_) request.wait();
    told.wait();
  } catch (...) {
    cancel();
    throw;
  }
  note_time();
  cancel();
  return std::ranges::find(finite_, 0) == finite_.end();
}

// As the communicator recorded it, whoever made the progress.
void PieceAverage::note_time() {
  took_ = {};
  TimePoint before{};
  for (const CallRecord& call : comm_.recorder().last(requests_.size() + 1)) {
    const bool is_piece = call.group == group_->tag() && call.kind == CallKind::kAllReduce;
    if (!is_piece || call.state != CallRecord::kDone) continue;
    const TimePoint begun = std::max(call.started, before);
    if (call.ended > begun) took_ += call.ended - begun;
    before = std::max(before, call.ended);
  }
}

void PieceAverage::cancel() noexcept {
  requests_.clear();
  group_.reset();
}

}  // namespace motley
