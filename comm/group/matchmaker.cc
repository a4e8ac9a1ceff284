#include "comm/group/matchmaker.h"

#include <algorithm>
#include <cassert>

namespace motley {

void Matchmaker::ready(int rank) {
  assert(std::find(queue_.begin(), queue_.end(), rank) == queue_.end());
  queue_.push_back(rank);
}

void Matchmaker::remove(int rank) { std::erase(queue_, rank); }

std::vector<int> Matchmaker::next(int group_size, int participants) {
  const int wanted = std::max(1, std::min(group_size, participants));
  if (waiting() < wanted) return {};
  std::vector<int> members(queue_.begin(), queue_.begin() + wanted);
  queue_.erase(queue_.begin(), queue_.begin() + wanted);
  std::sort(members.begin(), members.end());
  return members;
}

}  // namespace motley
