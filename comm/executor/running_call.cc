#include "comm/executor/running_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley {

Notice RunningCall::disagreement_with(int peer, std::string text) const {
  const auto [low, high] = std::minmax({peer, transport_.rank()});
  return {.call = id(), .from = transport_.rank(), .ranks = {low, high}, .text = std::move(text)};
}

void RunningCall::fail(const Error& error) {
  if (!finished()) error_ = error;
}

void RunningCall::fail_timeout(TimePoint now, const Diagnosis& diagnosis) {
  const std::vector<int> ranks = diagnosis.behind.empty() ? awaited() : diagnosis.behind;
  const std::string others = ranks.empty() ? "what this rank does"
                                           : fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                                                         fmt::join(ranks, ", "));
  fail(Error(ErrorCode::kTimeout,
             fmt::format("{} timed out after {:.1f} s (allowed {:.1f} s) {}; {} bytes have arrived."
                         "{} Check {}, or raise the timeout.",
                         who(), to_seconds(now - call_.started),
                         to_seconds(call_.deadline - call_.started), waiting_text(), bytes_,
                         diagnosis.text, others),
             ranks));
}

void RunningCall::fail_lost(int rank, const std::string& why) {
  if (lost_a_rank()) error_.reset();
  fail(Error(
      ErrorCode::kPeerLost,
      fmt::format("{} lost rank {}: {}. No call with that rank can complete.", who(), rank, why),
      {rank}));
}

void RunningCall::fail_aborted(const std::string& why) {
  fail(Error(ErrorCode::kAborted, fmt::format("{} was given up: {}.", who(), why)));
}

void RunningCall::failed(std::uint32_t, const Error& error) {
  if (error.code() == ErrorCode::kPeerLost && !error.ranks().empty()) {
    fail_lost(error.ranks().front(), error.what());
  } else {
    fail(Error(error.code(), fmt::format("{}: {}", who(), error.what()), error.ranks()));
  }
}

void RunningCall::disagreed(int from, const Tag& theirs, const Fingerprint& ours) {
  fail_mismatch(disagreement(id(), transport_.rank(), ours, from, theirs.fingerprint));
}

void RunningCall::fail_mismatch(const Notice& notice) {
  if (error_) return;
  notice_ = notice;
  fail(Error(ErrorCode::kMismatch,
             fmt::format("{} disagrees with another rank: {}. All members must make the same call "
                         "with the same count, dtype and op.",
                         who(), notice.text),
             notice.ranks));
}

void RunningCall::fail_for_all(const Error& error) {
  if (finished()) return;
  notice_ = Notice{.call = id(),
                   .from = transport_.rank(),
                   .ranks = error.ranks(),
                   .text = error.what(),
                   .code = error.code()};
  fail(Error(error.code(), fmt::format("{}: {}", who(), error.what()), error.ranks()));
}

// Where it is about a message it is news even for a call that is complete here.
void RunningCall::fail_told(const Notice& notice) {
  const bool of_message = notice.call.group != id().group;
  if (error_ || (finished() && !of_message)) return;
  const bool earlier = of_message || notice.call.number != call_.number;
  const std::string of_call =
      earlier ? fmt::format(" in {} #{}{}", of_message ? "message" : "call", notice.call.number,
                            of_message ? scope_text(notice.call.group) : "")
              : "";
  const bool disagree = notice.code == ErrorCode::kMismatch;
  error_.emplace(
      notice.code,
      fmt::format("{}: rank {} {}{}: {}{}", who(), notice.from,
                  disagree ? "found a disagreement" : "could not go on", of_call, notice.text,
                  disagree
                      ? ". All members must make the same call with the same count, dtype and op."
                      : ""),
      notice.ranks);
  if (!notice.pass_on && !of_message) return;
  notice_ = notice;
  if (of_message) notice_->call = id();
  notice_->pass_on = false;
}

}  // namespace motley
