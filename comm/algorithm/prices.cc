#include "comm/algorithm/prices.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley {
namespace {

constexpr int kStepsPerCall = 4;  // copies and reductions of nothing that take as long as a call

Duration time_of(double bytes, double bytes_per_second) {
  return Duration(std::llround(bytes / bytes_per_second * 1e9));
}

// Pieces into which the executor cuts the call (executor/layout.h).
std::int64_t pieces_of(const Workload& work, const Schedule& schedule, int parts) {
  if (work.segment_bytes == 0 || schedule.steps == 0) return 1;
  const double segment =
      std::max(1.0, static_cast<double>(work.segment_bytes) / schedule.max_step_chunks);
  double share = 1.0 / parts;  // of the largest chunk
  if (!schedule.weights.empty()) {
    const auto most = *std::max_element(schedule.weights.begin(), schedule.weights.end());
    const double all = std::accumulate(schedule.weights.begin(), schedule.weights.end(), 0.0);
    share = all > 0 ? most / all : 1.0;
  }
  return std::max<std::int64_t>(
      1, std::llround(std::ceil(static_cast<double>(work.bytes) * share / segment)));
}

}  // namespace

Prices::Prices(const Workload& work, const Schedule& schedule, const Topology& topology)
    : topology_(topology), weights_(schedule.weights) {
  const bool shares = place_of(work.kind, {}, 0).where == Place::kShare;
  const bool one = work.kind == CallKind::kSendRecv;
  const int parts = shares ? schedule.first_scratch() : one ? 1 : topology.ranks();
  const double all = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  pieces_ = pieces_of(work, schedule, parts);
  unit_bytes_ = static_cast<double>(work.bytes) / (weights_.empty() ? parts : all) /
                static_cast<double>(pieces_);
}

void Prices::join_pieces() {
  unit_bytes_ *= static_cast<double>(pieces_);
  pieces_ = 1;
}

Duration Prices::work(const Schedule& schedule, const Step& step) const {
  if (step.kind == Step::kSend || step.kind == Step::kRecv) return {};
  const TopologyCosts& costs = topology_.costs();
  const double speed =
      step.kind == Step::kCopy ? costs.copy_bytes_per_second : costs.reduce_bytes_per_second;
  // What is done apart from a message takes a while however short it is.
  const Duration start = step.is_local() ? costs.per_call / kStepsPerCall : Duration{};
  const double bytes = bytes_of(schedule, step);
  // Reductions are priced by what they add to taking a message in; here none is taken in.
  const bool alone = step.is_local() && step.kind != Step::kCopy;
  const Duration reading = alone ? time_of(bytes, costs.copy_bytes_per_second) : Duration{};
  return start + reading + time_of(bytes, speed);
}

Duration Prices::keeping(int from, int to, double bytes) const {
  if (!topology_.same_host(from, to)) return {};
  return time_of(bytes, topology_.costs().copy_bytes_per_second);
}

double Prices::bytes_of(const Schedule& schedule, const Step& step) const {
  if (weights_.empty()) return unit_bytes_ * step.chunk_count;
  double weight = 0;
  for (int i = 0; i < step.chunk_count; ++i)
    weight += weights_[static_cast<std::size_t>(schedule.sized_as(step.first_chunk + i))];
  return unit_bytes_ * weight;
}

Duration Prices::transfer(const Schedule& schedule, int rank, const Step& step) const {
  const Topology::Route route = topology_.route(rank, step.peer);
  const double speed = std::min(route.out_bytes_per_second, route.link->bytes_per_second);
  return route.link->per_message + time_of(bytes_of(schedule, step), speed);
}

}  // namespace motley
