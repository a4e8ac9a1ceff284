// A rank's questions about the groups of partial-reduce.
#include <fmt/format.h>

#include <utility>

#include "comm/control/client.h"

namespace motley {

GroupOutcome ControlClient::ready(std::int64_t step, int group_size, TimePoint deadline) {
  return group_call({.type = MessageType::kReady, .count = group_size, .number = step}, deadline,
                    fmt::format("waiting for a group at step {}", step));
}

GroupOutcome ControlClient::done(const GroupTag& tag, TimePoint deadline) {
  return group_call({.type = MessageType::kDone, .tag = tag}, deadline,
                    fmt::format("waiting for group {} to end", tag.id & ~GroupTag::kControllerBit));
}

GroupOutcome ControlClient::fail(const GroupTag& tag, int suspect, TimePoint deadline) {
  return group_call(
      {.type = MessageType::kFail, .rank = suspect, .tag = tag}, deadline,
      fmt::format("waiting for the next attempt of group {}", tag.id & ~GroupTag::kControllerBit));
}

void ControlClient::withdraw(TimePoint deadline) {
  call({.type = MessageType::kWithdraw}, deadline, "withdrawing from its group");
}

void ControlClient::leave(TimePoint deadline) {
  call({.type = MessageType::kLeave}, deadline, "leaving the training");
}

GroupOutcome ControlClient::group_call(Message request, TimePoint deadline,
                                       const std::string& doing) {
  Message reply = call(std::move(request), deadline, doing);
  GroupOutcome outcome{.kind = GroupOutcome::kSolo, .tag = reply.tag, .members = {}};
  if (reply.type == MessageType::kCommit) outcome.kind = GroupOutcome::kCommit;
  if (reply.type == MessageType::kGroup) {
    outcome.kind = GroupOutcome::kGroup;
    outcome.members.assign(reply.ranks.begin(), reply.ranks.end());
  }
  return outcome;
}

}  // namespace motley
