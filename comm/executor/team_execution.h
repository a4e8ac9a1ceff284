// comm/executor/team_execution.h: one call under way that the transport runs as a whole.
//
// The counterpart of Execution for calls without a schedule; the engine treats both alike.
#pragma once

#include <optional>
#include <string>

#include "comm/clock.h"
#include "comm/error.h"
#include "comm/executor/call.h"
#include "comm/transport/team.h"

namespace motley {

class TeamExecution {
 public:
  // What Call::algorithm is for calls that the team runs: no index of a family.
  static constexpr int kAlgorithm = 255;

  static TeamCall part_of(const Call& call);
  // Takes over `run`, which `call` began.
  TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call);
  TeamExecution(const TeamExecution&) = delete;
  TeamExecution& operator=(const TeamExecution&) = delete;

  // Moves what can be moved; afterwards it may be finished. True if anything was.
  bool advance();
  bool finished() const noexcept { return error_ || run_->state == TeamRun::State::kDone; }
  const std::optional<Error>& error() const noexcept { return error_; }
  const Call& call() const noexcept { return call_; }
  // The rank that the call waits for, or -1.
  int awaited() const noexcept { return run_->peer; }

  // The call will not complete.
  void fail(const Error& error);
  void fail_timeout(TimePoint now);
  void fail_lost(int rank, const std::string& why);
  void fail_aborted(const std::string& why);
  // To be called once, when it is finished: no buffer is touched afterwards.
  void close() noexcept { team_.end(*run_); }

 private:
  std::string who() const;

  Transport& transport_;
  Team& team_;
  TeamRun* run_;
  Call call_;
  std::optional<Error> error_;
};

}  // namespace motley
