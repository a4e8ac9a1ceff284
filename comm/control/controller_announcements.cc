// Ranks that say beforehand when they will be ready.
#include <algorithm>
#include <utility>

#include "comm/control/controller_core.h"

namespace motley {
namespace {

// How late a rank may be before its group goes on without it: so many times the mean error of what
// it announced of late, but this share of its step at least; that share alone while its error is
// not known.
constexpr int kErrors = 3;
constexpr int kLeastPart = 20;
constexpr int kUnknownPart = 2;
constexpr int kLooksPerLease = 16;  // while it is not decided whether a rank is in its group
// What a scheduler may do to any thread.
constexpr Duration kLeastPatience = std::chrono::milliseconds(10);

}  // namespace

void ControllerCore::take_announcement(int rank, const Message& message) {
  const ReadyNote& note = member(rank).note;
  // What came of another is in the group, or the queue, that waits_for_last_group() ends.
  set_due(rank, TimePoint::max());
  std::optional<Announced>& announced = member(rank).announced;
  announced.reset();
  if (note.eta <= Duration::zero()) return;
  announced = {.step = message.number,
               .expected = now_ + note.eta - note.round_trip / 2,  // on the way so long
               .round_trip = note.round_trip,
               .ahead = note.ahead,
               .told = {}};
}

void ControllerCore::forget_announcement(int rank) {
  set_due(rank, TimePoint::max());
  member(rank).announced.reset();
}

void ControllerCore::set_due(int rank, TimePoint when) {
  TimePoint& due = member(rank).due;
  if (due != TimePoint::max()) due_.erase({due, rank});
  due = when;
  if (due != TimePoint::max()) due_.insert({due, rank});
}

Duration ControllerCore::patience_with(int rank) const {
  const Member& self = members_[static_cast<std::size_t>(rank)];
  const Duration step = matchmaker_.step_of(rank);
  const Duration usual = self.error > Duration::zero()
                             ? std::max(kErrors * self.error, step / kLeastPart)
                             : step / kUnknownPart;
  return std::max(usual, kLeastPatience) + self.announced->round_trip;
}

void ControllerCore::serve_due() {
  while (!due_.empty() && due_.begin()->first <= now_) {
    const int rank = due_.begin()->second;
    set_due(rank, TimePoint::max());
    const bool in_group = groups_.contains(rank);
    if (std::exchange(member(rank).undecided, false) && in_group) {
      decide_begin(rank);
      continue;
    }
    if (!in_group) {
      enqueue(rank);
      continue;
    }
    tell_dropped(rank);
    if (const auto verdict = groups_.excuse(rank, AbortReason::kLate)) announce(*verdict);
  }
}

bool ControllerCore::begins_as_announced(int rank, const Message& message) {
  const auto& announced = member(rank).announced;
  return message.type == MessageType::kReady && announced && announced->step == message.number;
}

// The rank is now what it announced: its answer is under way, or will be.
void ControllerCore::ready_as_announced(int rank, const Message& message) {
  Member& self = member(rank);
  const std::optional<Message> told = std::move(self.announced->told);
  confirm(rank);
  if (self.held == Held::kReady) {
    if (const auto verdict = groups_.asks(rank)) announce(*verdict);
    return;
  }
  const bool in_it = told && groups_.contains(rank) && groups_.tag_of(rank).id == told->tag.id;
  // It may have become no number since it was announced, or a large one.
  if (in_it && self.note.gives && (!self.note.large || decode_group(told->value)->large)) {
    answer(rank, Lane::kGroup, *told);
    return begin_attempt(rank);
  }
  if (self.note.gives && matchmaker_.waits(rank)) return;
  if (!waits_for_last_group(rank, message, Held::kReady)) enqueue(rank);
}

void ControllerCore::confirm(int rank) {
  Member& self = member(rank);
  const TimePoint expected = self.announced->expected;
  const Duration error = expected < now_ ? now_ - expected : expected - now_;
  self.error =
      std::max(self.error == Duration{} ? error : (3 * self.error + error) / 4, Duration(1));
  forget_announcement(rank);
}

// The rank knows its group already.
void ControllerCore::begin(int rank, const Message& message) {
  if (!take_note(rank, message)) return withdraw(rank);
  Member& self = member(rank);
  if (!groups_.awaits(rank, message.tag)) return refuse_to_begin(rank, message.tag);
  if (message.tag.epoch != config_.epoch) return decide_begin(rank);
  std::optional<Message> told;
  if (self.announced) {
    told = std::move(self.announced->told);
    confirm(rank);
  }
  if (!told || told->tag == message.tag) told = {.type = MessageType::kOk};
  answer(rank, Lane::kGroup, *told);
  begin_attempt(rank);
}

// The controller before this one formed the group, and may have taken the rank out of it again, of
// which the rank had not heard. The others know: who is still in it names it in what it says next.
// Those of whom the same is not known do not: several may have been taken out, one as the other.
// With nobody left who may know, all of them have another group.
void ControllerCore::decide_begin(int rank) {
  const std::vector<int> members = groups_.members_of(rank);
  const auto knows = [&](int each) {
    return each != rank && member(each).grouped && !member(each).undecided;
  };
  if (std::any_of(members.begin(), members.end(), knows)) {
    answer(rank, Lane::kGroup, {.type = MessageType::kOk});
    return begin_attempt(rank);
  }
  const bool all_ask = std::all_of(members.begin(), members.end(), [&](int each) {
    return each == rank || member(each).undecided;
  });
  if (all_ask) {
    const GroupTag tag = groups_.tag_of(rank);
    drop(rank, AbortReason::kOther);
    return refuse_to_begin(rank, tag);
  }
  member(rank).undecided = true;
  set_due(rank, now_ + config_.lease / kLooksPerLease);
}

void ControllerCore::refuse_to_begin(int rank, const GroupTag& tag) {
  send(member(rank).identity, {.type = MessageType::kDropped, .rank = rank, .tag = tag});
  forget_announcement(rank);
  if (!waits_for_last_group(rank, {}, Held::kReady)) enqueue(rank);
}

// Others may have given the attempt up already.
void ControllerCore::begin_attempt(int rank) {
  if (groups_.begins(rank)) return;
  send(member(rank).identity,
       {.type = MessageType::kDropped, .rank = rank, .tag = groups_.tag_of(rank)});
}

void ControllerCore::drop(int rank, AbortReason why) {
  tell_dropped(rank);
  if (const auto verdict = groups_.remove(rank, why)) announce(*verdict);
}

void ControllerCore::tell_dropped(int rank) {
  const GroupTag tag = groups_.tag_of(rank);
  for (const int other : groups_.members_of(rank)) {
    if (other == rank || member(other).state != State::kLive) continue;
    send(member(other).identity, {.type = MessageType::kDropped, .rank = rank, .tag = tag});
  }
}

}  // namespace motley
