#include "comm/group/group_table.h"

#include <algorithm>
#include <cassert>

namespace motley {

GroupTag GroupTable::form(const std::vector<int>& members) {
  Running group{.tag = {.id = GroupTag::kControllerBit | next_id_++, .epoch = epoch_},
                .members = {}};
  for (const int rank : members) {
    assert(!group_of_.contains(rank));
    group_of_[rank] = group.tag.id;
    group.members.push_back({rank, State::kRunning});
  }
  const GroupTag tag = group.tag;
  groups_.emplace(tag.id, std::move(group));
  return tag;
}

GroupTable::Member* GroupTable::find(int rank) {
  const auto id = group_of_.find(rank);
  if (id == group_of_.end()) return nullptr;
  std::vector<Member>& members = groups_.at(id->second).members;
  return &*std::find_if(members.begin(), members.end(),
                        [rank](const Member& member) { return member.rank == rank; });
}

bool GroupTable::awaits(int rank, const GroupTag& tag) const {
  const auto id = group_of_.find(rank);
  if (id == group_of_.end()) return false;
  const Running& group = groups_.at(id->second);
  return group.tag == tag &&
         std::any_of(group.members.begin(), group.members.end(), [rank](const Member& member) {
           return member.rank == rank && member.state == State::kRunning;
         });
}

std::optional<Verdict> GroupTable::report(int rank, Report report) {
  find(rank)->state = report == Report::kDone ? State::kDone : State::kFailed;
  return judge(group_of_.at(rank));
}

std::optional<Verdict> GroupTable::remove(int rank) {
  const auto found = group_of_.find(rank);
  if (found == group_of_.end()) return std::nullopt;
  const std::uint64_t id = found->second;
  std::erase_if(groups_.at(id).members,
                [rank](const Member& member) { return member.rank == rank; });
  group_of_.erase(found);
  return judge(id);
}

std::optional<Verdict> GroupTable::judge(std::uint64_t id) {
  Running& group = groups_.at(id);
  const auto in_state = [&group](State state) {
    return std::any_of(group.members.begin(), group.members.end(),
                       [state](const Member& member) { return member.state == state; });
  };
  if (in_state(State::kRunning)) return std::nullopt;

  Verdict verdict{.kind = Verdict::kCommit, .tag = group.tag, .members = {}};
  for (const Member& member : group.members) verdict.members.push_back(member.rank);
  if (in_state(State::kFailed)) {
    verdict.kind = group.members.size() > 1 ? Verdict::kRetry : Verdict::kSolo;
  }
  if (verdict.kind == Verdict::kRetry) {
    ++group.tag.attempt;
    for (Member& member : group.members) member.state = State::kRunning;
    verdict.tag = group.tag;
    return verdict;
  }
  for (const Member& member : group.members) group_of_.erase(member.rank);
  groups_.erase(id);
  if (verdict.members.empty()) return std::nullopt;  // all are dead: nobody to tell
  return verdict;
}

}  // namespace motley
