#include "comm/algorithm/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley {
namespace {

std::string chunks_text(int first, int count) {
  if (count == 0) return "nothing";
  if (count == 1) return fmt::format("chunk {}", first);
  return fmt::format("chunks {}..{}", first, first + count - 1);
}

bool meet(int a, int b, int count_a, int count_b) noexcept {
  return std::max(a, b) < std::min(a + count_a, b + count_b);
}

// Whether what `a` writes is read or written by `b`.
bool writes_into(const Step& a, const Step& b) noexcept {
  if (a.kind == Step::kSend) return false;
  const int first = a.first_written();
  return meet(first, b.first_chunk, a.chunk_count, b.chunk_count) ||
         (b.is_local() && meet(first, b.to_chunk, a.chunk_count, b.chunk_count));
}

}  // namespace

bool conflict(const Step& a, const Step& b) noexcept {
  return writes_into(a, b) || writes_into(b, a);
}

int Schedule::sized_as(int chunk) const {
  if (chunk < first_scratch()) return chunk;
  return scratch_like ? scratch_like(chunk - first_scratch()) : 0;
}

Schedule Schedule::from_steps(int chunks, std::vector<Step> steps) {
  Schedule schedule{.chunks = chunks, .steps = static_cast<int>(steps.size()), .at = {}};
  for (const Step& step : steps) {
    if (step.is_local()) continue;
    schedule.max_step_chunks = std::max(schedule.max_step_chunks, step.chunk_count);
  }
  schedule.at = [list = std::move(steps)](int i) { return list[static_cast<std::size_t>(i)]; };
  return schedule;
}

std::string to_text(const Step& step) {
  const std::string chunks = chunks_text(step.first_chunk, step.chunk_count);
  const std::string target = chunks_text(step.to_chunk, step.chunk_count);
  switch (step.kind) {
    case Step::kSend:
      return fmt::format("send {} to {}", chunks, step.peer);
    case Step::kRecv:
      return fmt::format("recv {} from {}", chunks, step.peer);
    case Step::kRecvReduce:
      return fmt::format("recv+reduce {} from {}", chunks, step.peer);
    case Step::kCopy:
      return fmt::format("copy {} to {}", chunks, target);
    case Step::kReduce:
      break;
  }
  return fmt::format("reduce {} into {}", chunks, target);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (int i = 0; i < schedule.steps; ++i) text += to_text(schedule.at(i)) + "\n";
  return text;
}

Place place_of(CallKind kind, const Shape& shape, int chunk) noexcept {
  const bool is_root = shape.rank == shape.root;
  switch (kind) {
    case CallKind::kReduceScatter:
      return chunk < shape.size ? Place{Place::kIn, chunk} : Place{Place::kOut, 0};
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return {Place::kOut, chunk};
    case CallKind::kGather:
      return is_root ? Place{Place::kOut, chunk} : Place{Place::kIn, 0};
    case CallKind::kScatter:
      return is_root && chunk < shape.size ? Place{Place::kIn, chunk} : Place{Place::kOut, 0};
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return chunk < shape.size ? Place{Place::kIn, chunk} : Place{Place::kOut, chunk - shape.size};
    case CallKind::kSendRecv:
      return {shape.rank == 0 ? Place::kIn : Place::kOut, 0};
    default:
      return {Place::kShare, chunk};
  }
}

int fixed_chunks(CallKind kind, const Shape& shape) noexcept {
  const bool is_root = shape.rank == shape.root;
  switch (kind) {
    case CallKind::kReduceScatter:
      return shape.size + 1;
    case CallKind::kAllGather:
    case CallKind::kAllGatherV:
      return shape.size;
    case CallKind::kGather:
      return is_root ? shape.size : 1;
    case CallKind::kScatter:
      return is_root ? shape.size + 1 : 1;
    case CallKind::kAllToAll:
    case CallKind::kAllToAllV:
      return 2 * shape.size;
    case CallKind::kSendRecv:
      return 1;
    default:
      return 0;
  }
}

}  // namespace motley
