// comm/executor/team_execution.h: one call under way that the transport runs as a whole.
//
// The counterpart of Execution for calls without a schedule; the engine treats both alike.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/executor/agreement.h"
#include "comm/executor/call.h"
#include "comm/executor/running_call.h"
#include "comm/executor/staging.h"
#include "comm/transport/team.h"

namespace motley {

class TeamExecution final : public RunningCall {
 public:
  // What Call::algorithm is for calls that the team runs: no index of a family. Members must agree
  // on it, and so on whether the call is deterministic.
  static constexpr int kAlgorithm = 255;
  static constexpr int kDeterministic = 254;
  static constexpr bool runs(int algorithm) noexcept { return algorithm >= kDeterministic; }

  static TeamCall part_of(const Call& call);
  // Takes over `run`, which `call` began.
  TeamExecution(Transport& transport, Team& team, TeamRun& run, const Call& call);

  // Asks the other members whether they make the same call, if the team does not find that out.
  void start();
  // Moves what can be moved; afterwards it may be finished. True if anything was.
  bool advance();
  bool finished() const noexcept override {
    const bool agreed = !agreement_ || agreement_->complete();
    return error_ || (run_->state == TeamRun::State::kDone && agreed);
  }
  std::vector<int> awaited() const override;
  // When it may be finished though no message came: the end of work on a device wakes nobody.
  TimePoint next_look(TimePoint now) const noexcept {
    return agreement_ ? motley::next_look(now, call_.started) : TimePoint::max();
  }
  bool awaits(int rank) const noexcept { return run_->peer == rank; }

  // To be called once, when it is finished: no buffer is touched afterwards.
  void close() noexcept { team_.end(*run_, error_ ? &*error_ : nullptr); }

  // Messages only say what others call.
  void sent(std::uint32_t) override { agreement_->sent(); }
  void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) override;

 private:
  std::string who() const override;
  std::string waiting_text() const override;

  Team& team_;
  TeamRun* run_;
  std::optional<Agreement> agreement_;
};

}  // namespace motley
