// wide/loss.h: what a score costs beside its label, and the slope of that by the score.
//
//   logistic        log(1 + exp(-y s))       y = 1 for label 1, -1 for label 0
//   squared         (s - label)^2 / 2        any label
//   hinge           max(0, 1 - y s)
//   squared_hinge   max(0, 1 - y s)^2
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace motley::wide {

enum class Loss : std::uint8_t {
  kDefault = 0,  // that of the model's kind: squared hinge for an SVM, else logistic
  kLogistic = 1,
  kSquared = 2,
  kHinge = 3,
  kSquaredHinge = 4,
};
const char* name(Loss loss) noexcept;
// Throws kInvalid, listing the names there are.
Loss loss_kind(const std::string& name);

// label 0 or 1. No form overflows for any score. T: float, or double in tests.
struct LogisticLoss {
  template <class T>
  static constexpr double loss(T score, float label) {
    const double s = label > 0 ? static_cast<double>(score) : -static_cast<double>(score);
    return std::log1p(std::exp(-std::abs(s))) + (s < 0 ? -s : 0.0);
  }
  // d loss / d score = probability - label.
  template <class T>
  static constexpr T slope(T score, float label) {
    return probability(score) - static_cast<T>(label);
  }
  template <class T>
  static constexpr T probability(T score) {
    const T e = std::exp(-std::abs(score));
    return (score < 0 ? e : T(1)) / (T(1) + e);
  }
};

constexpr double loss_of(Loss kind, double score, float label) {
  if (kind == Loss::kSquared) {
    const double off = score - static_cast<double>(label);
    return off * off / 2;
  }
  if (kind == Loss::kLogistic) return LogisticLoss::loss(score, label);
  const double margin = label > 0 ? score : -score;
  const double short_by = margin < 1 ? 1 - margin : 0;
  return kind == Loss::kHinge ? short_by : short_by * short_by;
}

// d loss / d score; where a hinge has a kink, that of its flat side.
template <class T>
constexpr T slope_of(Loss kind, T score, float label) {
  if (kind == Loss::kLogistic) return LogisticLoss::slope(score, label);
  if (kind == Loss::kSquared) return score - static_cast<T>(label);
  const T sign = label > 0 ? T(1) : T(-1);
  const T short_by = T(1) - sign * score;
  if (!(short_by > 0)) return 0;
  return kind == Loss::kHinge ? -sign : -2 * sign * short_by;
}

// What a user is told: a probability for the logistic loss, else the score itself.
constexpr float prediction_of(Loss kind, float score) {
  return kind == Loss::kLogistic ? LogisticLoss::probability(score) : score;
}

}  // namespace motley::wide
