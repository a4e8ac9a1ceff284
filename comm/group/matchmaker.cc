#include "comm/group/matchmaker.h"

#include <algorithm>
#include <cassert>

namespace motley {

void Matchmaker::ready(int rank, TimePoint now) {
  assert(std::none_of(queue_.begin(), queue_.end(),
                      [rank](const Waiting& each) { return each.rank == rank; }));
  queue_.push_back({rank, now});
}

void Matchmaker::remove(int rank) {
  std::erase_if(queue_, [rank](const Waiting& each) { return each.rank == rank; });
}

std::vector<int> Matchmaker::next(int group_size, int participants, TimePoint now) {
  hold_until_ = TimePoint::max();
  const int wanted = std::max(1, std::min(group_size, participants));
  if (waiting() < wanted) return {};
  const Waiting head = queue_.front();
  std::vector<int> members = candidates(wanted);
  const TimePoint until = head.since + hold(head, members);
  if (wanted < participants && now < until) {
    hold_until_ = until;
    return {};
  }
  for (const int rank : members) {
    remove(rank);
    Last& last = last_[rank];
    last.times = last.members == members ? last.times + 1 : 1;
    last.members = members;
    last.formed = now;
  }
  return members;
}

// How long after the head was ready the group has to wait for a change of partners.
Duration Matchmaker::hold(const Waiting& head, const std::vector<int>& members) const {
  const auto last = last_.find(head.rank);
  if (last == last_.end() || last->second.members != members) return {};
  return (head.since - last->second.formed) * std::min(last->second.times - 1, kMostHolds) /
         kHoldsPerStep;
}

// The head and, oldest first, those that were not in its last group, then those that were.
// Ascending.
std::vector<int> Matchmaker::candidates(int wanted) const {
  const int head = queue_.front().rank;
  const auto last = last_.find(head);
  const auto again = [&](int rank) {
    return last != last_.end() &&
           std::binary_search(last->second.members.begin(), last->second.members.end(), rank);
  };
  std::vector<int> order;
  for (const Waiting& each : queue_) order.push_back(each.rank);
  std::stable_partition(order.begin() + 1, order.end(), [&](int rank) { return !again(rank); });
  order.resize(static_cast<std::size_t>(wanted));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace motley
