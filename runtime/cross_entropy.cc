#include "runtime/cross_entropy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "comm/error.h"

namespace motley::runtime {
namespace {

void check(std::size_t scores, std::size_t labels, std::size_t d_scores) {
  const bool rows_fit = labels == 0 ? scores == 0 : scores >= labels && scores % labels == 0;
  if (rows_fit && (d_scores == 0 || d_scores == scores)) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("softmax_cross_entropy: {} scores, {} labels and {} gradients. Pass "
                          "as many scores for each label, and a gradient for each score.",
                          scores, labels, d_scores));
}

}  // namespace

template <class T>
Loss softmax_cross_entropy(std::span<const T> scores, std::span<const std::uint8_t> labels,
                           std::span<T> d_scores, double gradient_scale) {
  check(scores.size(), labels.size(), d_scores.size());
  Loss loss;
  const std::size_t rows = labels.size();
  const std::size_t classes = rows == 0 ? 0 : scores.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto s = scores.subspan(row * classes, classes);
    const std::size_t label = labels[row];
    if (label >= classes) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("softmax_cross_entropy: row {} has label {}, but there are {} "
                              "classes. Labels count from 0.",
                              row, label, classes));
    }
    const auto best = std::max_element(s.begin(), s.end());
    const double largest = static_cast<double>(*best);
    double sum = 0;
    for (const T x : s) sum += std::exp(static_cast<double>(x) - largest);
    loss.mean += std::log(sum) + largest - static_cast<double>(s[label]);
    loss.correct += static_cast<std::size_t>(best - s.begin()) == label ? 1 : 0;
    if (d_scores.empty()) continue;
    const double scale = gradient_scale / static_cast<double>(rows);
    for (std::size_t i = 0; i < classes; ++i) {
      const double probability = std::exp(static_cast<double>(s[i]) - largest) / sum;
      d_scores[row * classes + i] = static_cast<T>((probability - (i == label ? 1 : 0)) * scale);
    }
  }
  if (rows > 0) loss.mean /= static_cast<double>(rows);
  return loss;
}

template Loss softmax_cross_entropy(std::span<const float>, std::span<const std::uint8_t>,
                                    std::span<float>, double);
template Loss softmax_cross_entropy(std::span<const double>, std::span<const std::uint8_t>,
                                    std::span<double>, double);

}  // namespace motley::runtime
