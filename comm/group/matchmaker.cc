#include "comm/group/matchmaker.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace motley {
namespace {

constexpr int kMostLooks = 1024;
constexpr int kMostHalvings = 6;  // of a hold, after others in vain

Duration part_of(Duration step, double share) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(step.count()) * share));
}

}  // namespace

Matchmaker::Matchmaker(int size)
    : workers_(static_cast<std::size_t>(size)),
      graph_(size),
      sizer_(size),
      picked_(static_cast<std::size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) graph_.add(rank);
}

void Matchmaker::use(const Grouping& grouping) {
  grouping_ = grouping;
  begins_ = training() == 0;
  sizer_ = GroupSizer(static_cast<int>(workers_.size()));
  for (Worker& each : workers_) {
    each.steps = false;
    each.step = {};
  }
}

void Matchmaker::add(int rank) {
  graph_.add(rank);
  worker(rank).steps = false;
  sizer_.disturbed();
}

void Matchmaker::retire(int rank) {
  remove(rank);
  graph_.remove(rank);
  sizer_.remove(rank);
  sizer_.disturbed();
}

int Matchmaker::group_size() const noexcept {
  return grouping_.group_size > 0 ? grouping_.group_size : sizer_.size(training());
}

void Matchmaker::ready(int rank, const Arrival& arrival, TimePoint now) {
  Worker& self = worker(rank);
  assert(!self.waits);
  if (std::exchange(begins_, false)) gather_until_ = now + kGather;
  self.waits = true;
  self.takes = !arrival.gives;
  self.since = now;
  Duration last{};
  if (std::exchange(self.steps, false)) {
    last = now - self.formed;
    self.step = self.step == Duration{} ? last : (3 * self.step + last) / 4;
  }
  if (grouping_.group_size == 0 && arrival.gives) {
    sizer_.ready(rank, last, arrival.sketch, arrival.moved);
  }
  if (self.takes) {
    takers_.push_back(rank);
    return;
  }
  self.before = tail_;
  self.after = kNobody;
  (tail_ == kNobody ? head_ : worker(tail_).after) = rank;
  tail_ = rank;
  ++waiting_;
}

void Matchmaker::remove(int rank) {
  Worker& self = worker(rank);
  if (!std::exchange(self.waits, false)) return;
  if (self.takes) {
    std::erase(takers_, rank);
    return;
  }
  (self.before == kNobody ? head_ : worker(self.before).after) = self.after;
  (self.after == kNobody ? tail_ : worker(self.after).before) = self.before;
  --waiting_;
}

int Matchmaker::givers() const {
  const auto trains = [this](int rank) { return graph_.trains(rank); };
  return training() - static_cast<int>(std::count_if(takers_.begin(), takers_.end(), trains));
}

std::vector<int> Matchmaker::next(TimePoint now) {
  hold_until_ = TimePoint::max();
  if (now < gather_until_ && training() < static_cast<int>(workers_.size())) {
    if (waiting() > 0) hold_until_ = gather_until_;
    return {};
  }
  const int givers = this->givers();
  if (givers <= 0) alone_ = takers_.size();
  alone_ = std::min(alone_, takers_.size());
  if (alone_ > 0) {
    --alone_;
    members_ = {takers_.front()};
    return form(0, now);
  }
  if (givers <= 0) return {};
  int wanted = std::min(group_size(), givers);
  const int part = std::min(sizer_.part(training()), givers);
  const bool few = grouping_.group_size == 0 && waiting_ < wanted;
  if (!few || waiting_ < part) part_since_ = TimePoint::max();
  if (few && waiting_ >= part) {
    const Worker& head = worker(head_);
    const int missing = std::exchange(wanted, part) - waiting_;
    if (head.step > Duration{}) {
      part_since_ = std::min(part_since_, now);
      const double usual = std::max(kPatience, kDeviations * sizer_.variation_of_all());
      const double patience = sizer_.gathers() ? 1 : usual;
      hold_until_ = part_since_ + part_of(head.step, patience);
      if (now < hold_until_) return {};
      sizer_.left_some(missing, training());
      wanted = sizer_.all() ? waiting_ : part;
      hold_until_ = TimePoint::max();
    }
  }
  if (waiting_ < wanted) {
    enough_since_ = TimePoint::max();
    return {};
  }
  pick(wanted);
  const TimePoint until = std::max(hold_to_bridge(wanted, givers, now),
                                   linger(wanted, std::min(grouping_.largest_group, givers), now));
  if (now < until) {
    hold_until_ = until;
    return {};
  }
  if (grouping_.largest_group > wanted && waiting_ > wanted) {
    pick(std::min(waiting_, grouping_.largest_group));
  }
  return form(givers, now);
}

// The head; then, oldest first, one of each other component; then whoever is oldest.
void Matchmaker::pick(int wanted) {
  members_.clear();
  ++picks_;
  const bool bridges = grouping_.guard == Guard::kBridge && graph_.components() > 1;
  const auto take = [&](int rank) {
    members_.push_back(rank);
    picked_[static_cast<std::size_t>(graph_.component(rank))] = picks_;
  };
  take(head_);
  for (int rank = worker(head_).after;
       bridges && rank != kNobody && static_cast<int>(members_.size()) < wanted;
       rank = worker(rank).after) {
    if (picked_[static_cast<std::size_t>(graph_.component(rank))] != picks_) take(rank);
  }
  const auto bridging = static_cast<std::ptrdiff_t>(members_.size());
  for (int rank = worker(head_).after;
       rank != kNobody && static_cast<int>(members_.size()) < wanted; rank = worker(rank).after) {
    const auto end = members_.begin() + bridging;
    if (std::find(members_.begin(), end, rank) == end) members_.push_back(rank);
  }
}

bool Matchmaker::is_one_component() {
  const int component = graph_.component(members_.front());
  return std::all_of(members_.begin(), members_.end(),
                     [&](int rank) { return graph_.component(rank) == component; });
}

TimePoint Matchmaker::hold_to_bridge(int wanted, int givers, TimePoint now) {
  if (grouping_.guard == Guard::kNone || !graph_.is_due() || wanted >= givers) return now;
  if (!is_one_component()) {
    if (std::exchange(hold_, {}).head != kNobody) vain_ = 0;
    return now;
  }
  const Worker& head = worker(head_);
  if (hold_.head != head_ || hold_.since != head.since) {
    Duration step = Duration::max();
    for (const int rank : members_) {
      if (worker(rank).step > Duration{}) step = std::min(step, worker(rank).step);
    }
    hold_ = {.head = head_, .since = head.since, .until = now, .counted = false};
    if (step == Duration::max()) return now;
    const TimePoint until = now + part_of(step, kHold / (1 << vain_));
    if (!somebody_comes(graph_.component(head_), until, now)) return now;
    hold_.until = until;
    hold_.counted = true;
    ++holds_;
  }
  if (waiting_ >= std::max(2 * wanted - 1, grouping_.largest_group + 1)) return now;
  if (now >= hold_.until && std::exchange(hold_.counted, false)) {
    ++holds_in_vain_;
    vain_ = std::min(vain_ + 1, kMostHalvings);
  }
  return hold_.until;
}

// One of another component is expected by `until`, and not long overdue; among so many that looking
// costs microseconds, others each time.
bool Matchmaker::somebody_comes(int from_other_than, TimePoint until, TimePoint now) {
  const int size = static_cast<int>(workers_.size());
  for (int looks = std::min(size, kMostLooks); looks > 0; --looks) {
    looked_at_ = looked_at_ + 1 < size ? looked_at_ + 1 : 0;
    const int rank = looked_at_;
    const Worker& each = worker(rank);
    if (!each.steps || each.step == Duration{}) continue;
    const TimePoint expected = each.formed + each.step;
    if (expected > until || expected + part_of(each.step, kHold) < now) continue;
    if (graph_.component(rank) != from_other_than) return true;
  }
  return false;
}

TimePoint Matchmaker::linger(int wanted, int most, TimePoint now) {
  if (most <= wanted || waiting_ >= most) return now;
  if (enough_since_ == TimePoint::max()) enough_since_ = now;
  return enough_since_ + part_of(worker(head_).step, grouping_.linger);
}

// Of members_, and of those that give nothing, as many more at most.
std::vector<int> Matchmaker::form(int givers, TimePoint now) {
  std::vector<int> members = std::exchange(members_, {});
  const std::size_t most = 2 * members.size();
  for (std::size_t i = 0; givers > 0 && i < takers_.size() && members.size() < most; ++i) {
    members.push_back(takers_[i]);
  }
  Duration waited{};
  for (const int rank : members) {
    remove(rank);
    Worker& each = worker(rank);
    waited += now - each.since;
    each.steps = graph_.trains(rank);
    each.formed = now;
  }
  std::sort(members.begin(), members.end());
  if (members.size() > 1) graph_.join(members);
  if (grouping_.group_size == 0) {
    sizer_.formed(static_cast<int>(members.size()), waited, training());
  }
  enough_since_ = part_since_ = TimePoint::max();
  return members;
}

}  // namespace motley
