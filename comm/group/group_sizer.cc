#include "comm/group/group_sizer.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace motley {
namespace {

constexpr int kGroupsAtLeast = 8;  // between decisions
constexpr int kRounds = 3;         // in which each rank takes part, on average

}  // namespace

int GroupSizer::part(int live) const noexcept {
  const int most = std::max(std::min(2, live), std::min(kLargest, live - 1));
  const int p = std::clamp(p_, std::min(2, most), most);
  // Else live mod P ranks wait for a whole step.
  for (const int near : {p, p + 1, p - 1}) {
    if (about_alike_ && near >= 2 && near <= most && live % near == 0) return near;
  }
  return p;
}

void GroupSizer::ready(int rank, Duration step, const Sketch& sketch, double moved) {
  remove(rank);
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  self = {.known = true, .sketch = sketch, .moved2 = moved * moved};
  ++known_;
  for (std::size_t i = 0; i < sketch.size(); ++i) {
    const auto value = static_cast<double>(sketch[i]);
    sum_[i] += value;
    squares_ += value * value;
  }
  moved2_ += self.moved2;
  if (step <= Duration::zero()) return;
  ++steps_;
  step_sum_ += to_seconds(step);
  step_squares_ += to_seconds(step) * to_seconds(step);
}

void GroupSizer::remove(int rank) {
  Rank& self = ranks_[static_cast<std::size_t>(rank)];
  if (!std::exchange(self.known, false)) return;
  --known_;
  for (std::size_t i = 0; i < self.sketch.size(); ++i) {
    const auto value = static_cast<double>(self.sketch[i]);
    sum_[i] -= value;
    squares_ -= value * value;
  }
  moved2_ -= self.moved2;
}

double GroupSizer::consensus() const noexcept {
  if (known_ == 0) return 0;
  double mean2 = 0;
  for (const double sum : sum_) mean2 += (sum / known_) * (sum / known_);
  return std::sqrt(std::max(0.0, squares_ / known_ - mean2));
}

double GroupSizer::moved() const noexcept {
  return known_ == 0 ? 0 : std::sqrt(std::max(0.0, moved2_ / known_));
}

double GroupSizer::variation() const noexcept {
  if (steps_ == 0 || step_sum_ <= 0) return 1;
  const double mean = step_sum_ / static_cast<double>(steps_);
  const double variance = step_squares_ / static_cast<double>(steps_) - mean * mean;
  return std::sqrt(std::max(0.0, variance)) / mean;
}

void GroupSizer::formed(int members, Duration waiting, int live) {
  taken_part_ += members;
  waited_ += to_seconds(waiting);
  const std::int64_t enough = std::max<std::int64_t>(std::int64_t{kGroupsAtLeast} * part(live),
                                                     std::int64_t{kRounds} * live);
  if (taken_part_ >= enough) decide(live);
}

void GroupSizer::decide(int live) {
  const double cv = variation();
  about_alike_ = cv < kAboutAlike;
  const double share = waited_ / std::max(waited_ + step_sum_, 1e-12);
  const double apart = consensus() / std::max(moved(), 1e-12);
  if (all_) {
    all_ = cv < kNotAlike && !disturbed_;
  } else if (cv < kAlike && !disturbed_ && steps_ > 0) {
    all_ = true;
  } else if (moved() > 0 && apart > kFarApart) {
    p_ = std::min(part(live) + 1, kLargest);
  } else if (share > kMuchWaiting && apart < kClose) {
    p_ = std::max(part(live) - 1, 2);
  }
  if (all_) variation_of_all_ = cv;
  begin_period();
}

void GroupSizer::straggled() noexcept {
  all_ = about_alike_ = false;
  begin_period();
}

void GroupSizer::begin_period() noexcept {
  taken_part_ = 0;
  steps_ = 0;
  step_sum_ = step_squares_ = waited_ = 0;
  disturbed_ = false;
}

}  // namespace motley
