// comm/group/step_estimate.h: how long a rank takes to what it announces, by how long it took of
// late. Nothing where that tells too little: a group waits a while for a member that comes later
// than it said, and goes on without it, which costs both more than the way to the controller.
#pragma once

#include <optional>

#include "comm/clock.h"

namespace motley {

class StepEstimate {
 public:
  static constexpr int kMostError = 7;  // one part in so many of what is estimated, in the mean

  void took(Duration time) noexcept {
    if (usual_ == Duration{}) {
      usual_ = time;
      return;
    }
    const Duration error = time < usual_ ? usual_ - time : time - usual_;
    error_ = (3 * error_ + error) / 4;
    usual_ = (3 * usual_ + time) / 4;
  }
  std::optional<Duration> next() const noexcept {
    if (usual_ <= Duration{} || kMostError * error_ > usual_) return std::nullopt;
    return usual_;
  }

 private:
  Duration usual_{};
  Duration error_{};
};

}  // namespace motley
