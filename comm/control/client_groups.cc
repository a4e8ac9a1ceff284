// A rank's questions about the groups of partial-reduce.
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "comm/control/client.h"
#include "comm/control/client_state.h"
#include "comm/error.h"

namespace motley {
namespace {

// For an answer that nobody can do without.
constexpr int kForGood = 1 << 20;

}  // namespace

void ControlClient::announce(std::int64_t step, ReadyNote note) {
  const std::scoped_lock one_call(state_->calls[static_cast<std::size_t>(Lane::kGroup)]);
  const std::scoped_lock lock(state_->mutex);
  note.round_trip = state_->core.round_trip();
  state_->announced = step;
  state_->core.request(
      with_open({.type = MessageType::kReady, .number = step, .value = encode(note)}),
      clock_.now());
  flush();
}

std::optional<GroupOutcome> ControlClient::announced_group() const {
  const std::scoped_lock lock(state_->mutex);
  const Message* reply = state_->core.reply(Lane::kGroup);
  if (!state_->announced || reply == nullptr || state_->core.failure()) return std::nullopt;
  if (reply->type != MessageType::kGroup) return std::nullopt;
  GroupOutcome outcome = outcome_of(*reply, "looking at the group that was announced");
  if (outcome.kind != GroupOutcome::kGroup) return std::nullopt;
  return outcome;
}

// The answer to what this rank announced, if it came and still holds.
std::optional<GroupOutcome> ControlClient::take_announced(std::int64_t step, const ReadyNote& note,
                                                          const std::optional<GroupTag>& begun) {
  const std::scoped_lock one_call(state_->calls[static_cast<std::size_t>(Lane::kGroup)]);
  const std::scoped_lock lock(state_->mutex);
  const bool announced = std::exchange(state_->announced, std::nullopt) == step;
  const Message* reply = state_->core.reply(Lane::kGroup);
  if (!announced || reply == nullptr || state_->core.failure()) return std::nullopt;
  if (!note.gives && begun != reply->tag) return std::nullopt;
  if (reply->type != MessageType::kGroup && reply->type != MessageType::kSolo) return std::nullopt;
  GroupOutcome outcome = outcome_of(*reply, "taking the group that was announced");
  if (outcome.kind == GroupOutcome::kHeal) return outcome;
  const bool weighs = !note.large || outcome.note.large || outcome.kind == GroupOutcome::kSolo;
  if (!weighs && begun != outcome.tag) return std::nullopt;
  state_->open = {};
  if (outcome.kind == GroupOutcome::kSolo) return outcome;
  state_->begun = outcome.tag;
  state_->core.request({.type = MessageType::kBegin,
                        .number = step,
                        .tag = outcome.tag,
                        .ranks = {outcome.members.begin(), outcome.members.end()},
                        .value = encode(note)},
                       clock_.now());
  flush();
  return outcome;
}

std::optional<GroupOutcome> ControlClient::replaced(const GroupTag& tag, TimePoint deadline) {
  constexpr const char* kDoing = "beginning with the group that was announced";
  const std::scoped_lock one_call(state_->calls[static_cast<std::size_t>(Lane::kGroup)]);
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->begun, std::nullopt) != tag) return std::nullopt;
  const ClientCore& core = state_->core;
  while (core.reply(Lane::kGroup) == nullptr) {
    const TimePoint now = clock_.now();
    if (core.failure()) check_usable(now, kDoing, kSilentLeases);
    if (core.broken() || core.silence(now) > kSilentLeases * core.lease()) return std::nullopt;
    if (now >= deadline) throw_no_answer(kDoing);
    state_->changed.wait_until(lock, std::min(deadline, now + core.lease()));
  }
  const Message reply = *core.reply(Lane::kGroup);
  if (reply.type == MessageType::kError) throw_error(reply, kDoing);
  const bool other = reply.type == MessageType::kSolo ||
                     (reply.type == MessageType::kGroup && reply.tag.id != tag.id);
  if (!other) return std::nullopt;
  return outcome_of(reply, kDoing);
}

GroupOutcome ControlClient::ready(std::int64_t step, const ReadyNote& note, TimePoint deadline,
                                  const std::optional<GroupTag>& begun) {
  if (auto announced = take_announced(step, note, begun)) return std::move(*announced);
  return ask_for_group({.type = MessageType::kReady, .number = step, .value = encode(note)},
                       deadline, kUnlessBroken,
                       fmt::format("waiting for a group at step {}", step));
}

void ControlClient::done(const GroupTag& tag, const std::vector<int>& members) {
  const std::scoped_lock one_call(state_->calls[static_cast<std::size_t>(Lane::kGroup)]);
  const std::scoped_lock lock(state_->mutex);
  state_->begun.reset();
  state_->open = tag;
  state_->open_members = members;
  state_->core.request(
      {.type = MessageType::kDone, .tag = tag, .ranks = {members.begin(), members.end()}},
      clock_.now());
  flush();
}

GroupOutcome ControlClient::fail(const GroupTag& tag, const std::vector<int>& members,
                                 const Failure& failure, const ReadyNote& note,
                                 TimePoint deadline) {
  return group_call(
      {.type = MessageType::kFail,
       .rank = failure.suspect,
       .number = static_cast<std::int64_t>(failure.code),
       .tag = tag,
       .ranks = {members.begin(), members.end()},
       .value = encode(note)},
      deadline, kForGood,
      fmt::format("waiting for the next attempt of group {}", tag.id & ~GroupTag::kControllerBit));
}

void ControlClient::withdraw(TimePoint deadline) {
  Message request{.type = MessageType::kWithdraw};
  {
    const std::scoped_lock lock(state_->mutex);
    state_->announced.reset();
    request = with_open(std::move(request));
  }
  call(std::move(request), deadline, "withdrawing from its group");
}

GroupOutcome ControlClient::leave(TimePoint deadline) {
  return ask_for_group({.type = MessageType::kLeave}, deadline, 1, "leaving the training");
}

// Names the group that is still open, which ends with any answer but that to heal others.
Message ControlClient::with_open(Message request) const {
  const Message* reply = state_->core.reply(Lane::kGroup);
  if (reply != nullptr && reply->type == MessageType::kCommit) state_->open = {};
  request.tag = state_->open;
  if (request.tag.id != 0) {
    request.ranks.assign(state_->open_members.begin(), state_->open_members.end());
  }
  return request;
}

GroupOutcome ControlClient::ask_for_group(Message request, TimePoint deadline, int leases,
                                          const std::string& doing) {
  {
    const std::scoped_lock lock(state_->mutex);
    request = with_open(std::move(request));
    state_->begun.reset();
  }
  try {
    GroupOutcome outcome = group_call(std::move(request), deadline, leases, doing);
    if (outcome.kind != GroupOutcome::kHeal) state_->open = {};
    return outcome;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost || !error.ranks().empty()) throw;
    // Should it be back: this rank is not ready any more.
    const std::scoped_lock lock(state_->mutex);
    state_->core.request(with_open({.type = MessageType::kWithdraw}), clock_.now());
    flush();
    return {.kind = GroupOutcome::kAway, .tag = {}, .members = {}, .note = {}};
  }
}

GroupOutcome ControlClient::group_call(Message request, TimePoint deadline, int leases,
                                       const std::string& doing) {
  return outcome_of(call(std::move(request), deadline, doing, OnLoss::kWait, leases), doing);
}

GroupOutcome ControlClient::outcome_of(Message reply, const std::string& doing) const {
  GroupOutcome outcome{.kind = GroupOutcome::kSolo, .tag = reply.tag, .members = {}, .note = {}};
  if (reply.type != MessageType::kGroup) return outcome;
  outcome.members.assign(reply.ranks.begin(), reply.ranks.end());
  auto note = decode_group(reply.value);
  if (!note || note->weights.size() != outcome.members.size()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("rank {} of {}: {}: {} weights came for {} members. Run the same "
                            "version everywhere.",
                            config_.rank, config_.size, doing, note ? note->weights.size() : 0,
                            outcome.members.size()));
  }
  outcome.kind = note->donor >= 0 ? GroupOutcome::kHeal : GroupOutcome::kGroup;
  outcome.note = std::move(*note);
  return outcome;
}

}  // namespace motley
