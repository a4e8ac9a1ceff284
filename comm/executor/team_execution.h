// comm/executor/team_execution.h: one call under way that the transport runs as a whole.
//
// The counterpart of Execution for calls without a schedule; the engine treats both alike.
#pragma once

#include <string>
#include <vector>

#include "comm/executor/call.h"
#include "comm/executor/running_call.h"
#include "comm/transport/team.h"

namespace motley {

class TeamExecution final : public RunningCall {
 public:
  // What Call::algorithm is for calls that the team runs: no index of a family.
  static constexpr int kAlgorithm = 255;

  static TeamCall part_of(const Call& call);
  // Takes over `run`, which `call` began.
  TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call);

  // Moves what can be moved; afterwards it may be finished. True if anything was.
  bool advance();
  bool finished() const noexcept override { return error_ || run_->state == TeamRun::State::kDone; }
  std::vector<int> awaited() const override;
  bool awaits(int rank) const noexcept { return run_->peer == rank; }

  // To be called once, when it is finished: no buffer is touched afterwards.
  void close() noexcept { team_.end(*run_); }

  // Messages are not what it works with.
  void sent(std::uint32_t) override {}
  void received(std::uint32_t, const Tag&, ConstBytes) override {}
  void failed(std::uint32_t, const Error&) override {}

 private:
  std::string who() const override;
  std::string waiting_text() const override;

  Team& team_;
  TeamRun* run_;
};

}  // namespace motley
