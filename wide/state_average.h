// wide/state_average.h: what happens to the state of a model between rows.
#pragma once

#include <cstddef>
#include <span>

#include "wide/huge_pages.h"
#include "wide/model.h"

namespace motley::wide {

// A running average of the states that a run goes through. The last state depends on which rows
// came last; the average hardly does. B. Polyak, A. Juditsky, "Acceleration of Stochastic
// Approximation by Averaging", SIAM J. Control Optim. 1992.
class StateAverage {
 public:
  // newest: the share of the newest state, in (0, 1], once so many were taken that it is above
  // theirs; before, all count alike.
  explicit StateAverage(float newest) : newest_(newest) {}
  void take(std::span<const float> state);
  bool empty() const noexcept { return taken_ == 0; }
  std::span<const float> state() const noexcept { return average_; }

 private:
  float newest_;
  std::size_t taken_ = 0;
  Floats average_;
};

// A step against a Gaussian prior of precision `prior` around 0 on each factor, as one pass over
// the data has it: once for each feature, however many rows use it. Of SGD and AdaGrad, with the
// rate that the factor's own step would have; implicit, so that no rate overshoots.
void step_prior(const ModelOptions& options, const Layout& layout, float rate, float prior,
                std::span<float> state);

}  // namespace motley::wide
