#include "comm/group/group_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace motley {
namespace {

// Ids of an epoch are above those of lower ones.
constexpr int kIdBits = 40;

}  // namespace

const char* name(AbortReason reason) noexcept {
  switch (reason) {
    case AbortReason::kDied:
      return "died";
    case AbortReason::kWithdrew:
      return "withdrew";
    case AbortReason::kPeerLost:
      return "peer_lost";
    case AbortReason::kTimeout:
      return "timeout";
    case AbortReason::kLate:
      return "late";
    case AbortReason::kOther:
      return "other";
  }
  return "unknown";
}

void GroupTable::begin_epoch(std::uint32_t epoch) noexcept {
  epoch_ = epoch;
  next_id_ = 1;
}

GroupTag GroupTable::form(const std::vector<int>& members) {
  const std::uint64_t restarts = epoch_ >> 16;
  const GroupTag tag{.id = GroupTag::kControllerBit | restarts << kIdBits | next_id_++,
                     .epoch = epoch_};
  const bool formed = adopt(tag, members);
  assert(formed);
  (void)formed;
  --counts_.adopted;
  ++counts_.formed;
  return tag;
}

bool GroupTable::adopt(const GroupTag& tag, const std::vector<int>& members) {
  if (const auto known = groups_.find(tag.id); known != groups_.end()) {
    std::uint32_t& attempt = known->second.tag.attempt;
    if (known->second.tag.epoch == tag.epoch) attempt = std::max(attempt, tag.attempt);
    return false;
  }
  if (std::any_of(members.begin(), members.end(), [this](int rank) { return contains(rank); })) {
    return false;
  }
  Running group{.tag = tag, .members = {}, .reason = {}};
  for (const int rank : members) {
    group_of_[rank] = tag.id;
    group.members.push_back({.rank = rank});
  }
  groups_.emplace(tag.id, std::move(group));
  ++counts_.adopted;
  return true;
}

void GroupTable::admit(int rank, const GroupTag& tag) {
  const auto group = groups_.find(tag.id);
  if (group == groups_.end() || group->second.tag.epoch != tag.epoch || contains(rank)) return;
  std::vector<Member>& members = group->second.members;
  const auto after = std::find_if(members.begin(), members.end(),
                                  [rank](const Member& each) { return each.rank > rank; });
  members.insert(after, {.rank = rank});
  group_of_[rank] = tag.id;
}

const GroupTable::Member* GroupTable::find(int rank) const {
  const auto id = group_of_.find(rank);
  if (id == group_of_.end()) return nullptr;
  const std::vector<Member>& members = groups_.at(id->second).members;
  return &*std::find_if(members.begin(), members.end(),
                        [rank](const Member& each) { return each.rank == rank; });
}

bool GroupTable::awaits(int rank, const GroupTag& tag) const {
  const Member* found = find(rank);
  if (found == nullptr) return false;
  if (found->state != State::kRunning && found->state != State::kLate) return false;
  const GroupTag& current = groups_.at(group_of_.at(rank)).tag;
  return current.id == tag.id && current.epoch == tag.epoch && current.attempt >= tag.attempt;
}

bool GroupTable::keeps_result(int rank) const {
  const Member* found = find(rank);
  return found != nullptr && found->state == State::kDone;
}

std::vector<int> GroupTable::members_of(int rank) const {
  std::vector<int> members;
  for (const Member& each : groups_.at(group_of_.at(rank)).members) members.push_back(each.rank);
  return members;
}

std::optional<Verdict> GroupTable::done(int rank) {
  member(rank).state = State::kDone;
  member(rank).has_result = true;
  return judge(group_of_.at(rank));
}

std::optional<Verdict> GroupTable::failed(int rank, AbortReason why) {
  Member& self = member(rank);
  // A donor has what it could not hand on.
  self.state = self.has_result ? State::kDone : State::kFailed;
  if (!group_of(rank).reason) group_of(rank).reason = why;
  return judge(group_of_.at(rank));
}

std::optional<Verdict> GroupTable::asks(int rank) {
  member(rank).asks = true;
  return judge(group_of_.at(rank));
}

std::optional<Verdict> GroupTable::withdraw(int rank) {
  if (!contains(rank)) return std::nullopt;
  if (!member(rank).has_result) return remove(rank, AbortReason::kWithdrew);
  member(rank).asks = false;
  if (member(rank).state != State::kRunning) return std::nullopt;
  return failed(rank, AbortReason::kWithdrew);
}

std::optional<Verdict> GroupTable::excuse(int rank, AbortReason why) {
  Member& self = member(rank);
  if (self.state != State::kRunning) return std::nullopt;
  self.state = State::kLate;
  if (!group_of(rank).reason) group_of(rank).reason = why;
  return judge(group_of_.at(rank));
}

bool GroupTable::begins(int rank) {
  // The others were told not to wait for a late one: some of them are about to fail.
  if (std::exchange(member(rank).state, State::kRunning) == State::kLate) return false;
  return std::none_of(group_of(rank).members.begin(), group_of(rank).members.end(),
                      [](const Member& each) { return each.state == State::kFailed; });
}

std::optional<Verdict> GroupTable::remove(int rank, AbortReason why) {
  const auto found = group_of_.find(rank);
  if (found == group_of_.end()) return std::nullopt;
  const std::uint64_t id = found->second;
  Running& group = groups_.at(id);
  if (!group.reason) group.reason = why;
  std::erase_if(group.members, [rank](const Member& each) { return each.rank == rank; });
  group_of_.erase(found);
  return judge(id);
}

std::optional<Verdict> GroupTable::judge(std::uint64_t id) {
  Running& group = groups_.at(id);
  const auto count = [&group](State state) {
    return std::count_if(group.members.begin(), group.members.end(),
                         [state](const Member& each) { return each.state == state; });
  };
  if (count(State::kRunning) > 0) return std::nullopt;
  if (count(State::kLate) > 0) {
    if (count(State::kDone) > 0 || count(State::kFailed) == 0) return std::nullopt;
    for (const Member& each : group.members) {
      if (each.state == State::kLate) group_of_.erase(each.rank);
    }
    std::erase_if(group.members, [](const Member& each) { return each.state == State::kLate; });
  }
  if (group.members.empty()) {
    ++counts_.died_out;
    groups_.erase(id);
    return std::nullopt;
  }
  if (count(State::kFailed) == 0) {
    ++counts_.committed;
    return end(id, Verdict::kCommit);
  }
  if (count(State::kDone) > 0) return heal(group);
  next_attempt(group);
  if (group.members.size() == 1) {
    ++counts_.ended_alone;
    return end(id, Verdict::kSolo);
  }
  ++counts_.retried;
  Verdict verdict{.kind = Verdict::kRetry, .tag = group.tag, .members = {}};
  for (Member& each : group.members) {
    each.state = State::kRunning;
    verdict.members.push_back(each.rank);
  }
  return verdict;
}

// Waits for one that is done to ask for its next group.
std::optional<Verdict> GroupTable::heal(Running& group) {
  const auto donor = std::find_if(group.members.begin(), group.members.end(), [](const Member& m) {
    return m.state == State::kDone && m.asks;
  });
  if (donor == group.members.end()) return std::nullopt;
  next_attempt(group);
  ++counts_.healed;
  donor->asks = false;
  Verdict verdict{.kind = Verdict::kHeal, .tag = group.tag, .members = {}, .donor = donor->rank};
  for (Member& each : group.members) {
    if (each.state == State::kDone && each.rank != verdict.donor) {
      verdict.keepers.push_back(each.rank);
      continue;
    }
    each.state = State::kRunning;
    verdict.members.push_back(each.rank);
  }
  return verdict;
}

void GroupTable::next_attempt(Running& group) {
  ++counts_.aborts[static_cast<std::size_t>(group.reason.value_or(AbortReason::kOther))];
  group.reason.reset();
  ++group.tag.attempt;
}

Verdict GroupTable::end(std::uint64_t id, Verdict::Kind kind) {
  Running& group = groups_.at(id);
  Verdict verdict{.kind = kind, .tag = group.tag, .members = {}};
  for (const Member& each : group.members) {
    verdict.members.push_back(each.rank);
    group_of_.erase(each.rank);
  }
  groups_.erase(id);
  return verdict;
}

}  // namespace motley
