// What the ranks say of their groups, and what they are told.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/control/controller_core.h"

namespace motley {
namespace {

// What differs first, and how.
std::string difference(const Grouping& here, const Grouping& there, int rank) {
  if (here.group_size != there.group_size) {
    return fmt::format("group size {} here, {} at rank {}. All ranks must pass the same.",
                       here.group_size, there.group_size, rank);
  }
  if (here.largest_group != there.largest_group || here.linger != there.linger) {
    return fmt::format(
        "groups up to {} within {} of a step here, up to {} within {} at rank {}. "
        "All ranks must pass the same.",
        here.largest_group, here.linger, there.largest_group, there.linger, rank);
  }
  return fmt::format("another {} here than at rank {}. All ranks must pass the same.",
                     here.guard != there.guard ? "guard" : "weighting", rank);
}

AbortReason reason_of(std::int64_t code) {
  if (code == static_cast<std::int64_t>(ErrorCode::kPeerLost)) return AbortReason::kPeerLost;
  if (code == static_cast<std::int64_t>(ErrorCode::kTimeout)) return AbortReason::kTimeout;
  return AbortReason::kOther;
}

}  // namespace

void ControllerCore::group_request(int rank, const Message& message) {
  // Who says that it is ready as announced has named its last group before.
  if (!begins_as_announced(rank, message)) adopt(rank, message);
  member(rank).grouped = true;
  member(rank).undecided = false;
  switch (message.type) {
    case MessageType::kReady:
      return ready(rank, message);
    case MessageType::kBegin:
      return begin(rank, message);
    case MessageType::kDone:
      return done(rank, message);
    case MessageType::kFail:
      return failed(rank, message);
    case MessageType::kWithdraw:
      if (groups_.awaits(rank, message.tag)) {
        if (const auto verdict = groups_.done(rank)) announce(*verdict);
      }
      withdraw(rank);
      return answer(rank, Lane::kGroup, {.type = MessageType::kOk});
    case MessageType::kLeave:
      return leave(rank, message);
    default:
      return;
  }
}

// A group of the controller before this one, which a member has not heard the end of. Those that
// have asked for something here since and did not name it are through with it; and all in it are
// through with those before it.
void ControllerCore::adopt(int rank, const Message& message) {
  const GroupTag& tag = message.tag;
  if (tag.id == 0 || tag.epoch == config_.epoch) return;
  // It has said so before, or it would not be in a later one.
  if (groups_.contains(rank) && groups_.tag_of(rank).id > tag.id) return;
  std::vector<int> members;
  for (const std::int32_t each : message.ranks) {
    if (each < 0 || each >= config_.size) return;
    const bool is_late = member(each).state == State::kAbsent && rebuilt_ == TimePoint::max();
    if (is_late) report_lost(each, kDidNotComeBack);
    const bool knows_better = member(each).grouped || member(each).state == State::kDead;
    if (each == rank || !knows_better) members.push_back(each);
  }
  std::sort(members.begin(), members.end());
  if (std::adjacent_find(members.begin(), members.end()) != members.end()) return;
  if (!std::binary_search(members.begin(), members.end(), rank)) return;
  std::erase_if(members, [&](int each) {
    return each != rank && groups_.contains(each) && groups_.tag_of(each).id > tag.id;
  });
  for (const int each : members) {
    if (!groups_.contains(each) || groups_.tag_of(each).id == tag.id) continue;
    drop(each, AbortReason::kOther);
  }
  leave_behind(tag, members, message.ranks);
  groups_.adopt(tag, members);
  if (message.type != MessageType::kFail && message.type != MessageType::kBegin) {
    groups_.admit(rank, tag);
  }
}

// A later attempt is made by those that it names: another that is known of an earlier one, and has
// not completed that, was taken out.
void ControllerCore::leave_behind(const GroupTag& tag, const std::vector<int>& known,
                                  const std::vector<std::int32_t>& named) {
  const auto in_it = std::find_if(known.begin(), known.end(), [&](int each) {
    return groups_.contains(each) && groups_.tag_of(each).id == tag.id;
  });
  if (in_it == known.end() || groups_.tag_of(*in_it).attempt >= tag.attempt) return;
  for (const int each : groups_.members_of(*in_it)) {
    const bool is_named = std::find(named.begin(), named.end(), each) != named.end();
    if (!is_named && !groups_.keeps_result(each)) drop(each, AbortReason::kOther);
  }
}

// True if the note can be used; else its sender has been told why not.
bool ControllerCore::take_note(int rank, const Message& message) {
  const auto note = decode_ready(message.value);
  if (!note) {
    answer_error(rank, Lane::kGroup, ErrorCode::kInvalid,
                 fmt::format("{} bytes are no note of a rank that is ready. Run the same version "
                             "everywhere.",
                             message.value.size()));
    return false;
  }
  // All have left: a new training may group otherwise.
  if (!grouping_ || (matchmaker_.training() == 0 && groups_.size() == 0)) {
    grouping_ = note->grouping;
    grouping_of_ = rank;
    matchmaker_.use(*grouping_);
  }
  if (note->grouping != *grouping_) {
    answer_error(rank, Lane::kGroup, ErrorCode::kMismatch,
                 difference(note->grouping, *grouping_, grouping_of_));
    return false;
  }
  member(rank).note = *note;
  return true;
}

// What a request for something new says of the group before. True if that is still open, because
// this rank may have to hand its result on: the request waits.
bool ControllerCore::waits_for_last_group(int rank, const Message& message, Held held) {
  matchmaker_.remove(rank);
  member(rank).held = Held::kNothing;
  if (groups_.awaits(rank, message.tag)) {
    if (const auto verdict = groups_.done(rank)) announce(*verdict);
  } else if (groups_.contains(rank) && !groups_.keeps_result(rank)) {
    drop(rank, AbortReason::kWithdrew);  // it did not see through what it asked for before
  }
  if (!groups_.keeps_result(rank)) return false;
  member(rank).held = held;
  if (member(rank).announced) return true;  // it is not there to hand the result on
  if (const auto verdict = groups_.asks(rank)) announce(*verdict);
  return true;
}

void ControllerCore::ready(int rank, const Message& message) {
  if (!take_note(rank, message)) return withdraw(rank);
  const bool announces = member(rank).note.eta > Duration::zero();
  if (!announces && begins_as_announced(rank, message)) return ready_as_announced(rank, message);
  take_announcement(rank, message);
  if (!waits_for_last_group(rank, message, Held::kReady)) enqueue(rank);
}

void ControllerCore::enqueue(int rank) {
  Member& sender = member(rank);
  if (sender.note.gives) {
    sender.gave = true;
    if (gathered_ == TimePoint::max()) gathered_ = now_ + kLeasesToCome * config_.lease;
    if (!std::exchange(sender.trains, true)) matchmaker_.add(rank);
  } else if (!sender.gave && std::exchange(sender.trains, false)) {
    matchmaker_.retire(rank);  // until it has something to give
  }
  if (sender.announced) {
    const Announced& announced = *sender.announced;
    const TimePoint enters = announced.expected - announced.round_trip - announced.ahead;
    if (enters > now_) return set_due(rank, enters);
  }
  metrics_.ready(rank, sender.note.gives,
                 sender.announced ? std::max(sender.announced->expected, now_) : now_);
  matchmaker_.ready(
      rank, {.gives = sender.note.gives, .sketch = sender.note.sketch, .moved = sender.note.moved},
      now_);
  form_groups();
}

void ControllerCore::leave(int rank, const Message& message) {
  forget_announcement(rank);
  if (waits_for_last_group(rank, message, Held::kLeave)) return;
  stop_training(rank, AbortReason::kWithdrew);
  answer(rank, Lane::kGroup, {.type = MessageType::kOk});
}

// Answered once the group is committed; nobody waits for that.
void ControllerCore::done(int rank, const Message& message) {
  if (!groups_.awaits(rank, message.tag)) {
    return answer(rank, Lane::kGroup, {.type = MessageType::kCommit, .tag = message.tag});
  }
  member(rank).held = Held::kDone;
  if (const auto verdict = groups_.done(rank)) announce(*verdict);
}

void ControllerCore::failed(int rank, const Message& message) {
  if (!take_note(rank, message)) return withdraw(rank);
  if (!groups_.awaits(rank, message.tag)) {
    // The controller before this one took it out of its group.
    if (message.tag.epoch != config_.epoch) {
      return answer(rank, Lane::kGroup, {.type = MessageType::kSolo, .tag = message.tag});
    }
    return answer_error(rank, Lane::kGroup, ErrorCode::kAborted,
                        fmt::format("this rank is not in group {} any more.",
                                    message.tag.id & ~GroupTag::kControllerBit));
  }
  metrics_.suspected(message.rank);
  if (const auto verdict = groups_.failed(rank, reason_of(message.number))) announce(*verdict);
}

void ControllerCore::withdraw(int rank) {
  matchmaker_.remove(rank);
  member(rank).held = Held::kNothing;
  if (member(rank).announced && groups_.contains(rank) && !groups_.keeps_result(rank)) {
    tell_dropped(rank);
  }
  forget_announcement(rank);
  if (const auto verdict = groups_.withdraw(rank)) announce(*verdict);
}

void ControllerCore::stop_training(int rank, AbortReason why) {
  matchmaker_.remove(rank);
  forget_announcement(rank);
  member(rank).held = Held::kNothing;
  member(rank).gave = false;
  if (std::exchange(member(rank).trains, false)) matchmaker_.retire(rank);
  if (const auto verdict = groups_.remove(rank, why)) announce(*verdict);
  form_groups();  // fewer participants may mean smaller groups
}

// Ranks that have said nothing of groups are not waited for any more; they may come yet. Should all
// that did come be gone, the next one to come waits for others as the first did.
void ControllerCore::give_up_strangers() {
  const auto has_come = [](const Member& each) { return each.trains && each.grouped; };
  if (std::none_of(members_.begin(), members_.end(), has_come)) {
    gathered_ = TimePoint::max();
    return;
  }
  for (int rank = 0; rank < config_.size; ++rank) {
    if (member(rank).grouped) continue;
    if (std::exchange(member(rank).trains, false)) matchmaker_.retire(rank);
  }
  form_groups();
}

void ControllerCore::form_groups() {
  while (true) {
    const std::vector<int> members = matchmaker_.next(now_);
    if (members.empty()) return;
    metrics_.formed(members, now_);
    if (members.size() == 1) {
      answer(members.front(), Lane::kGroup, {.type = MessageType::kSolo});
      continue;
    }
    tell_group(groups_.form(members), members);
  }
}

// Weights are made here, once for all members, of those that give.
void ControllerCore::tell_group(const GroupTag& tag, const std::vector<int>& members) {
  GroupNote note;
  std::vector<int> givers;
  std::vector<std::int64_t> versions;
  for (const int rank : members) {
    if (!member(rank).note.gives) continue;
    givers.push_back(rank);
    versions.push_back(member(rank).note.version);
    note.large = note.large || member(rank).note.large;
  }
  note.weights.resize(members.size());
  if (!givers.empty()) {
    note.version = *std::max_element(versions.begin(), versions.end());
    const std::vector<double> given = weights(grouping_->weighting, versions);
    metrics_.weighed(given, givers, versions);
    auto next = given.begin();
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (member(members[i]).note.gives) note.weights[i] = *next++;
    }
  }
  for (const int rank : members) {
    if (!member(rank).announced) continue;
    const TimePoint late = std::max(member(rank).announced->expected, now_) + patience_with(rank);
    set_due(rank, late);
    note.begins = std::max(note.begins, late - now_);
  }
  const Message group{
      .type = MessageType::kGroup, .tag = tag, .ranks = members, .value = encode(note)};
  for (const int rank : members) {
    member(rank).version = note.version;
    if (member(rank).announced) member(rank).announced->told = group;
    answer(rank, Lane::kGroup, group);
  }
}

void ControllerCore::announce(const Verdict& verdict) {
  switch (verdict.kind) {
    case Verdict::kRetry:
      return tell_group(verdict.tag, verdict.members);
    case Verdict::kHeal: {
      const std::string value =
          encode(GroupNote{.weights = std::vector<double>(verdict.members.size()),
                           .version = member(verdict.donor).version,
                           .donor = verdict.donor,
                           .keepers = verdict.keepers});
      for (const int rank : verdict.members) {
        member(rank).held = Held::kNothing;
        answer(rank, Lane::kGroup,
               {.type = MessageType::kGroup,
                .tag = verdict.tag,
                .ranks = verdict.members,
                .value = value});
      }
      return;
    }
    case Verdict::kSolo:
      return answer(verdict.members.front(), Lane::kGroup,
                    {.type = MessageType::kSolo, .tag = verdict.tag});
    case Verdict::kCommit:
      metrics_.committed(verdict.members, now_);
      for (const int rank : verdict.members) release(rank, verdict.tag);
  }
}

// The group of `rank` is committed: what it asked for since has its turn.
void ControllerCore::release(int rank, const GroupTag& tag) {
  switch (std::exchange(member(rank).held, Held::kNothing)) {
    case Held::kDone:
      return answer(rank, Lane::kGroup, {.type = MessageType::kCommit, .tag = tag});
    case Held::kReady:
      return enqueue(rank);
    case Held::kLeave:
      stop_training(rank, AbortReason::kWithdrew);
      return answer(rank, Lane::kGroup, {.type = MessageType::kOk});
    case Held::kNothing:
      return;
  }
}

}  // namespace motley
