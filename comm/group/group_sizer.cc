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
  if (self.period != period_) ++heard_;
  self = {.known = true, .sketch = sketch, .moved2 = moved * moved, .period = period_};
  ++known_;
  for (std::size_t i = 0; i < sketch.size(); ++i) {
    const auto value = static_cast<double>(sketch[i]);
    sum_[i] += value;
    squares_ += value * value;
  }
  moved2_ += self.moved2;
  if (step <= Duration::zero()) return;
  begun_ = true;
  ++steps_;
  step_sum_ += to_seconds(step);
  step_squares_ += to_seconds(step) * to_seconds(step);
  longest_ = std::max(longest_, to_seconds(step));
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

double GroupSizer::variation(Longest longest) const noexcept {
  const double less = longest == Longest::kForgiven && steps_ > 1 ? longest_ : 0;
  const auto steps = static_cast<double>(less > 0 ? steps_ - 1 : steps_);
  if (steps == 0 || step_sum_ <= less) return 1;
  const double mean = (step_sum_ - less) / steps;
  const double variance = (step_squares_ - less * less) / steps - mean * mean;
  return std::sqrt(std::max(0.0, variance)) / mean;
}

void GroupSizer::formed(int members, Duration waiting, int live) {
  if (members == live) {
    ++since_left_;
    gathers_ = false;
  }
  taken_part_ += members;
  waited_ += to_seconds(waiting);
  const std::int64_t enough = std::max<std::int64_t>(std::int64_t{kGroupsAtLeast} * part(live),
                                                     std::int64_t{kRounds} * live);
  if (taken_part_ >= enough) decide(live);
}

void GroupSizer::decide(int live) {
  // Among those that are alike one late step is an accident, else it may be all of a slow one's.
  const double cv = variation(all_ ? Longest::kForgiven : Longest::kCounts);
  about_alike_ = cv < kAboutAlike;
  const double share = waited_ / std::max(waited_ + step_sum_, 1e-12);
  const double apart = consensus() / std::max(moved(), 1e-12);
  if (all_) {
    all_ = cv < kNotAlike && !disturbed_;
  } else if (cv < kAlike && !disturbed_ && heard_ >= live) {  // one that was not may be slow
    all_ = gathers_ = true;
  } else if (moved() > 0 && apart > kFarApart) {
    p_ = std::min(part(live) + 1, kLargest);
  } else if (share > kMuchWaiting && apart < kClose) {
    p_ = std::max(part(live) - 1, 2);
  }
  if (all_) variation_of_all_ = cv;
  begin_period();
}

void GroupSizer::left_some(int missing, int live) noexcept {
  gathers_ = false;
  const bool seldom = std::exchange(since_left_, 0) >= kForgotten;
  if (seldom && kMany * missing <= live) return;
  since_left_ = kForgotten;
  all_ = about_alike_ = false;
  begin_period();
}

void GroupSizer::begin_period() noexcept {
  taken_part_ = 0;
  steps_ = 0;
  step_sum_ = step_squares_ = longest_ = waited_ = 0;
  disturbed_ = false;
  heard_ = 0;
  ++period_;
}

}  // namespace motley
