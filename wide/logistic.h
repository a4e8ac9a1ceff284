// wide/logistic.h: logistic regression: a linear score, and the logistic loss that FM uses too.
// What model.h says of the three functions holds here.
#pragma once

#include <cmath>

namespace motley::wide {

// score = sum of w_i x_i. One weight a feature.
struct Linear {
  struct Sum {
    float linear;
  };

  int weights() const { return 1; }
  void clear(Sum& sum) const { sum.linear = 0; }
  void gather(const float* weights, float value, Sum& sum) const {
    sum.linear += weights[0] * value;
  }
  float score(const Sum& sum) const { return sum.linear; }
  void scatter(const float* /*weights*/, float value, const Sum& /*sum*/, float slope,
               float* gradient) const {
    gradient[0] = slope * value;
  }
};

// label 0 or 1. Neither form overflows for any score.
struct LogisticLoss {
  // log(1 + exp(-s)), s the score, its sign turned for label 0.
  static double loss(float score, float label) {
    const double s = label > 0 ? score : -static_cast<double>(score);
    return std::log1p(std::exp(-std::abs(s))) + (s < 0 ? -s : 0.0);
  }
  // d loss / d score = probability - label.
  static float slope(float score, float label) { return probability(score) - label; }
  static float probability(float score) {
    const float e = std::exp(-std::abs(score));
    return (score < 0 ? e : 1.0f) / (1.0f + e);
  }
};

}  // namespace motley::wide
