#include "comm/group/patience.h"

#include <algorithm>

namespace motley {
namespace {

constexpr std::uint32_t kMostDoublings = 16;

Duration median(std::vector<Duration> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

}  // namespace

void Patience::took(std::size_t members, Duration time) {
  Past& past = past_[members];
  if (past.times.size() < kKept) {
    past.times.push_back(time);
    return;
  }
  past.times[past.next] = time;
  past.next = (past.next + 1) % kKept;
}

std::optional<Duration> Patience::limit(std::size_t members, std::uint32_t attempts_before) const {
  const auto past = past_.find(members);
  if (past == past_.end() || past->second.times.size() < kEnough) return std::nullopt;
  const Duration middle = median(past->second.times);
  std::vector<Duration> deviations;
  for (const Duration time : past->second.times) {
    deviations.push_back(time < middle ? middle - time : time - middle);
  }
  const Duration usual = std::max(floor_, middle + kDeviations * median(deviations));
  return usual * (1 << std::min(attempts_before, kMostDoublings));
}

}  // namespace motley
