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
                          .algorithm = kAlgorithm,
                          .root = static_cast<std::uint32_t>(call.root)},
          .group = call.group,
          .in = call.in,
          .out = call.out,
          .in_counts = call.in_counts,
          .out_counts = call.out_counts,
          .weight = call.weight};
}

TeamExecution::TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call)
    : RunningCall(transport, call), team_(team), run_(&run) {
  fingerprint_ = part_of(call).fingerprint;
}

bool TeamExecution::advance() {
  bool moved = false;
  try {
    moved = team_.advance(*run_);
  } catch (const Error& error) {
    fail(Error(error.code(), fmt::format("{}: {}", who(), error.what()), error.ranks()));
  }
  if (run_->state == TeamRun::State::kMismatch && !error_) {
    fail_mismatch(disagreement(id(), transport_.rank(), run_->ours, run_->peer, run_->theirs));
  }
  return moved;
}

std::vector<int> TeamExecution::awaited() const {
  return run_->peer < 0 ? std::vector<int>{} : std::vector<int>{run_->peer};
}

std::string TeamExecution::waiting_text() const {
  if (run_->peer < 0) return "with nothing to wait for";
  return fmt::format("waiting for rank {} ({}) to take part", run_->peer, transport_.name());
}

std::string TeamExecution::who() const {
  return motley::who(transport_, call_, fmt::format("all of {}", transport_.name()).c_str());
}

}  // namespace motley
