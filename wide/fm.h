// wide/fm.h: factorization machine of degree 2. What model.h says of the three functions holds
// here.
//
//   score = sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j
//
// The pairs cost k per feature, as sum_{i<j} <v_i, v_j> x_i x_j = (|S|^2 - sum_i |v_i x_i|^2) / 2
// with S = sum_i v_i x_i.  S. Rendle, "Factorization Machines", ICDM 2010, lemma 3.1.
#pragma once

namespace motley::wide {

inline constexpr int kMaxFactors = 256;

// K factors known to the compiler, or, if K = 0, `factors` of them. Weights of a feature: the
// factors, then w.
template <int K>
struct FactorizationMachine {
  static constexpr int kCapacity = K > 0 ? K : kMaxFactors;
  struct Sum {
    float factors[kCapacity];  // S
    float squares[kCapacity];  // sum of (v_i x_i)^2, for each factor
    float linear;
  };

  int factors = K;

  int k() const {
    if constexpr (K > 0) {
      return K;
    } else {
      return factors;
    }
  }
  int weights() const { return k() + 1; }
  void clear(Sum& sum) const {
    for (int d = 0; d < k(); ++d) sum.factors[d] = sum.squares[d] = 0;
    sum.linear = 0;
  }
  void gather(const float* weights, float value, Sum& sum) const {
    for (int d = 0; d < k(); ++d) {
      const float t = weights[d] * value;
      sum.factors[d] += t;
      sum.squares[d] += t * t;
    }
    sum.linear += weights[k()] * value;
  }
  float score(const Sum& sum) const {
    float pairs = 0;
    for (int d = 0; d < k(); ++d) pairs += sum.factors[d] * sum.factors[d] - sum.squares[d];
    return sum.linear + 0.5f * pairs;
  }
  void scatter(const float* weights, float value, const Sum& sum, float slope,
               float* gradient) const {
    const float g = slope * value;
    for (int d = 0; d < k(); ++d) gradient[d] = g * (sum.factors[d] - weights[d] * value);
    gradient[k()] = g;
  }
};

}  // namespace motley::wide
