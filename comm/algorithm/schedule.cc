#include "comm/algorithm/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley {
namespace {

std::string chunks_text(const Step& step) {
  if (step.chunk_count == 0) return "nothing";
  if (step.chunk_count == 1) return fmt::format("chunk {}", step.first_chunk);
  return fmt::format("chunks {}..{}", step.first_chunk, step.first_chunk + step.chunk_count - 1);
}

// Families without a root ignore it.
template <Schedule (*kMake)(int rank, int size)>
Schedule without_root(int rank, int size, int) {
  return kMake(rank, size);
}

}  // namespace

Schedule Schedule::from_steps(int chunks, std::vector<Step> steps) {
  Schedule schedule{.chunks = chunks, .steps = static_cast<int>(steps.size()), .at = {}};
  for (const Step& step : steps) {
    schedule.max_step_chunks = std::max(schedule.max_step_chunks, step.chunk_count);
  }
  schedule.at = [list = std::move(steps)](int i) { return list[static_cast<std::size_t>(i)]; };
  return schedule;
}

std::string to_text(const Step& step) {
  switch (step.kind) {
    case Step::kSend:
      return fmt::format("send {} to {}", chunks_text(step), step.peer);
    case Step::kRecv:
      return fmt::format("recv {} from {}", chunks_text(step), step.peer);
    case Step::kRecvReduce:
      break;
  }
  return fmt::format("recv+reduce {} from {}", chunks_text(step), step.peer);
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (int i = 0; i < schedule.steps; ++i) text += to_text(schedule.at(i)) + "\n";
  return text;
}

const std::vector<Algorithm>& all_reduce_algorithms() {
  static const std::vector<Algorithm> families = {
      {"direct", without_root<direct_all_reduce>},
      {"ring", without_root<ring_all_reduce>},
      {"halving_doubling", without_root<halving_doubling_all_reduce>},
  };
  return families;
}

const std::vector<Algorithm>& broadcast_algorithms() {
  static const std::vector<Algorithm> families = {{"tree", tree_broadcast}};
  return families;
}

const std::vector<Algorithm>& barrier_algorithms() {
  static const std::vector<Algorithm> families = {
      {"dissemination", without_root<dissemination_barrier>}};
  return families;
}

const std::vector<Algorithm>& algorithms_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return all_reduce_algorithms();
    case CallKind::kBroadcast:
      return broadcast_algorithms();
    case CallKind::kBarrier:
      break;
  }
  return barrier_algorithms();
}

}  // namespace motley
