#include "comm/executor/team_execution.h"

#include <fmt/format.h>

#include "comm/executor/describe.h"

namespace motley {

TeamCall TeamExecution::part_of(const Call& call) {
  return {.id = {call.group->tag(), call.number},
          .fingerprint = {.count = call.agreed_count(),
                          .kind = call.kind,
                          .dtype = call.out.dtype,
                          .op = call.op,
                          .algorithm = static_cast<std::uint8_t>(call.algorithm),
                          .root = static_cast<std::uint32_t>(call.root)},
          .group = call.group,
          .in = call.in,
          .out = call.out,
          .in_counts = call.in_counts,
          .out_counts = call.out_counts,
          .weight = call.weight,
          .deterministic = call.algorithm == kDeterministic,
          .stream = call.stream,
          .timeout = call.timeout};
}

TeamExecution::TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call)
    : RunningCall(transport, call), team_(team), run_(&run) {
  fingerprint_ = part_of(call).fingerprint;
  if (!team.compares()) agreement_.emplace(transport, call_, fingerprint_);
}

void TeamExecution::start() {
  if (agreement_) agreement_->start(*this);
}

void TeamExecution::received(std::uint32_t cookie, const Tag& tag, ConstBytes data) {
  ++messages_;
  bytes_ += data.size();
  const auto conflict = agreement_->heard(cookie, tag, data);
  if (!conflict) return;
  fail_mismatch(
      disagreement(id(), transport_.rank(), conflict->ours, conflict->rank, conflict->theirs));
}

bool TeamExecution::advance() {
  bool moved = false;
  try {
    moved = team_.advance(*run_);
  } catch (const Error& error) {
    agreement_ ? fail_for_all(error) : failed(0, error);
  }
  if (run_->state == TeamRun::State::kMismatch && !error_) {
    fail_mismatch(disagreement(id(), transport_.rank(), run_->ours, run_->peer, run_->theirs));
  }
  return moved;
}

std::vector<int> TeamExecution::awaited() const {
  if (agreement_) return agreement_->awaited();
  return run_->peer < 0 ? std::vector<int>{} : std::vector<int>{run_->peer};
}

std::string TeamExecution::waiting_text() const {
  const std::vector<int> ranks = awaited();
  if (ranks.empty()) return agreement_ ? "waiting for its device" : "with nothing to wait for";
  return fmt::format("waiting for rank{} {} ({}) to take part", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "), transport_.name());
}

std::string TeamExecution::who() const {
  const std::string how = agreement_ ? "nccl" : fmt::format("all of {}", transport_.name());
  return motley::who(transport_, call_, how.c_str());
}

}  // namespace motley
