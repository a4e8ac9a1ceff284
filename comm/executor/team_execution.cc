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
          .out = call.out};
}

TeamExecution::TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call)
    : transport_(transport), team_(team), run_(&run), call_(call) {}

bool TeamExecution::advance() {
  bool moved = false;
  try {
    moved = team_.advance(*run_);
  } catch (const Error& error) {
    fail(Error(error.code(), fmt::format("{}: {}", who(), error.what()), error.ranks()));
  }
  if (run_->state == TeamRun::State::kMismatch && !error_) {
    fail(disagreement(who(), part_of(call_).fingerprint, run_->theirs, run_->peer));
  }
  return moved;
}

void TeamExecution::fail(const Error& error) {
  if (!finished()) error_ = error;
}

void TeamExecution::fail_timeout(TimePoint now) {
  const std::string waiting = run_->peer < 0 ? "with nothing to wait for"
                                             : fmt::format("waiting for rank {} ({}) to take part",
                                                           run_->peer, transport_.name());
  std::vector<int> ranks;
  if (run_->peer >= 0) ranks.push_back(run_->peer);
  fail(lateness(who(), call_, now, waiting, ranks));
}

void TeamExecution::fail_lost(int rank, const std::string& why) { fail(loss(who(), rank, why)); }

void TeamExecution::fail_aborted(const std::string& why) { fail(abortion(who(), why)); }

std::string TeamExecution::who() const {
  return motley::who(transport_, call_, fmt::format("all of {}", transport_.name()).c_str());
}

}  // namespace motley
