// runtime/cross_entropy.h: the loss of a classifier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace motley::runtime {

struct Loss {
  double mean = 0;          // over rows; 0 for none
  std::size_t correct = 0;  // rows whose label has the largest score, the first of equal ones
};

// Softmax cross-entropy: the mean over rows of -log(exp(scores[label]) / sum of exp(scores)).
//   scores    [rows * classes], finite
//   labels    [rows], below `classes`
//   d_scores  [rows * classes], replaced by `gradient_scale` times the mean's gradient; or empty:
//             not wanted. Scales: that of mixed precision; or this worker's share of the rows of
//             all, where workers have unequal batches and add up their gradients
// Throws kInvalid for sizes that do not fit and for labels out of range.
template <class T>
Loss softmax_cross_entropy(std::span<const T> scores, std::span<const std::uint8_t> labels,
                           std::span<T> d_scores, double gradient_scale = 1);

}  // namespace motley::runtime
