#include "comm/transport/nccl_reduction.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/convert.h"
#include "comm/kernel/combine.h"
#include "comm/kernel/reduce.h"

namespace motley {
namespace {

constexpr std::size_t kLine = 256;  // bytes: parts of the scratch begin at multiples of it

constexpr std::size_t padded(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

NcclReduction::NcclReduction(NcclPart& part)
    : part_(part),
      call_(part.call_),
      by_blocks_(call_.fingerprint.kind == CallKind::kReduceScatter),
      scales_(call_.fingerprint.op == ReduceOp::kWeightedSum) {
  const DType dtype = call_.fingerprint.dtype;
  const bool is_short = is_floating(dtype) && size_bytes(dtype) == 2;
  const bool exact = call_.deterministic || scales_ || call_.fingerprint.op == ReduceOp::kAverage;
  work_ = is_short && exact ? DType::kFloat32 : dtype;
  wire_ = scales_ ? work_ : dtype;
  const auto p = static_cast<std::size_t>(part.members());
  total_ = by_blocks_ ? call_.out.count : call_.in.count;
  const std::size_t copies = scales_ ? 2 * p : p;
  const std::size_t per_element =
      copies * size_bytes(wire_) + 2 * size_bytes(work_) + size_bytes(dtype);
  const std::size_t lost = (copies + 3) * kLine;
  const std::size_t room = part.scratch_.size_bytes();
  if (room < lost + per_element) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{} bytes of scratch memory are too few for the terms of {} members.",
                            room, p));
  }
  each_ = std::min((room - lost) / per_element, by_blocks_ ? total_ : (total_ + p - 1) / p);
  term_bytes_ = padded(each_ * size_bytes(wire_));
  work_bytes_ = padded(each_ * size_bytes(work_));
  work_first_ = copies * term_bytes_;
  result_first_ = work_first_ + 2 * work_bytes_;
}

template <class View>
View NcclReduction::slice(const View& view, int member, std::size_t first) const noexcept {
  const auto i = static_cast<std::size_t>(member);
  if (by_blocks_) return view.slice(i * total_ + first, std::min(each_, total_ - first));
  const std::size_t from = std::min(total_, first + i * each_);
  return view.slice(from, std::min(each_, total_ - from));
}

View NcclReduction::term_of(int member, std::size_t count) {
  return part_.scratch_.view(static_cast<std::size_t>(member) * term_bytes_, count, wire_);
}

View NcclReduction::scaled_for(int member, std::size_t count) {
  const auto i = static_cast<std::size_t>(part_.members() + member);
  return part_.scratch_.view(i * term_bytes_, count, wire_);
}

void NcclReduction::run() {
  if (total_ == 0) return;
  const auto p = static_cast<std::size_t>(part_.members());
  const std::size_t piece = by_blocks_ ? each_ : p * each_;
  for (std::size_t first = 0; first < total_; first += piece) run_piece(first);
}

void NcclReduction::run_piece(std::size_t first) {
  const std::vector<ConstView> terms = collect(first);
  const View mine = result_of(first);
  if (mine.count != 0) add_up(mine, terms);
  if (!by_blocks_) deliver(first, mine);
}

// Each member's terms of this rank's slice come in; this rank's of the others' go out.
std::vector<ConstView> NcclReduction::collect(std::size_t first) {
  std::vector<ConstView> leaving, terms;
  for (int member = 0; member < part_.members(); ++member) {
    leaving.push_back(slice(call_.in, member, first));
    if (!scales_) continue;
    const View scaled = scaled_for(member, leaving.back().count);
    convert_on_device(scaled, leaving.back(), call_.stream, call_.weight);
    leaving.back() = scaled;
  }
  const ConstView own = leaving[static_cast<std::size_t>(part_.place_)];
  for (int member = 0; member < part_.members(); ++member)
    terms.push_back(member == part_.place_ ? own : ConstView(term_of(member, own.count)));
  part_.together([&] {
    part_.each_other([&](int member) {
      part_.send(member, leaving[static_cast<std::size_t>(member)]);
      part_.recv(member, term_of(member, own.count));
    });
  });
  return terms;
}

// Where this rank's sums of the piece go: where they stay, or on their way to the root.
View NcclReduction::result_of(std::size_t first) {
  if (by_blocks_) return call_.out.slice(first, std::min(each_, total_ - first));
  if (call_.out.count != 0) return slice(call_.out, part_.place_, first);
  const std::size_t count = slice(call_.in, part_.place_, first).count;
  return part_.scratch_.view(result_first_, count, call_.fingerprint.dtype);
}

// out = the terms, in the order of members.
void NcclReduction::add_up(View out, const std::vector<ConstView>& terms) {
  const StreamRef stream = call_.stream;
  const ReduceOp op = scales_ ? ReduceOp::kSum : call_.fingerprint.op;
  const auto worked_on = [&](std::size_t slot) {
    return part_.scratch_.view(work_first_ + slot * work_bytes_, out.count, work_);
  };
  if (terms.size() <= kMaxCombined) {
    const View sum = wire_ == out.dtype ? out : worked_on(0);
    combine_on_device(sum, terms, op, stream);
    if (sum.dtype != out.dtype) convert_on_device(out, sum, stream);
    return;
  }
  const View sum = worked_on(0);
  convert_on_device(sum, terms[0], stream);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const View next = worked_on(1);
    convert_on_device(next, terms[i], stream);
    reduce_on_device(sum, next, op, stream);
  }
  if (op == ReduceOp::kAverage) divide_on_device(sum, part_.members(), stream);
  convert_on_device(out, sum, stream);
}

// The sums go to whoever is to have them.
void NcclReduction::deliver(std::size_t first, View mine) {
  const bool all = call_.fingerprint.kind == CallKind::kAllReduce;
  const bool keeps = all || part_.place_ == part_.root();
  part_.together([&] {
    part_.each_other([&](int member) {
      if (all || member == part_.root()) part_.send(member, mine);
      if (keeps) part_.recv(member, slice(call_.out, member, first));
    });
  });
}

}  // namespace motley
