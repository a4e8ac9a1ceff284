// wide/optimizer.h: how a gradient g changes a weight w and what is kept beside it. Each rule has
// kPlanes numbers for a weight, s[0] = w itself, and works on all lanes of a P (lane.h) at once.
//
//   SGD       w -= a g
//   AdaGrad   G += g^2,  w -= a g / sqrt(G)
//             J. Duchi, E. Hazan, Y. Singer, JMLR 2011
//   FTRL      z += g - w (sqrt(n + g^2) - sqrt(n)) / a,  n += g^2,
//             w = -(z, moved towards 0 by l1) / ((beta + sqrt(n)) / a + l2)
//             H. B. McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013
//   Adam      m = b1 m + (1 - b1) g,  v = b2 v + (1 - b2) g^2,
//             w -= a (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + e)
//             D. P. Kingma, J. Ba, ICLR 2015; weights that no sample of an update uses stay as they
//             are, t counts all updates
// a: the learning rate. l2 adds l2 w to g (FTRL: as above); l1 moves the new weight towards 0 by
// the rate of this step times l1.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace motley::wide {

enum class Optimizer : std::uint8_t {
  kSgd = 1,
  kAdaGrad = 2,
  kFtrl = 3,
  kAdam = 4,
  // No rule, and of no model: weights stay, their gradients are summed up beside them, by batches
  // alone. For those whose weights others update (shard/).
  kGradientSum = 5,
};
const char* name(Optimizer optimizer) noexcept;
// Throws kInvalid, listing the names there are.
Optimizer optimizer_kind(const std::string& name);
// Numbers for a weight, itself included: 1, 2, 3, 3 and 2.
int planes(Optimizer optimizer) noexcept;

struct Rates {
  float learning_rate = 0.1f;
  float l1 = 0;
  float l2 = 0;
  float beta = 1;       // FTRL's
  float small = 1e-8f;  // Adam's e; of_step() multiplies it by sqrt(1 - b2^t)
  float step_root = 1;  // Adam's sqrt(1 - b2^t) / (1 - b1^t), set by of_step()
};

// x, moved towards 0 by `by`, not beyond.
template <class P>
constexpr P shrink(P x, P by) {
  return x - larger(P(0) - by, smaller(x, by));
}

struct Sgd {
  static constexpr int kPlanes = 1;
  static constexpr bool kPerEntry = true;  // l1 and l2 count once for each entry of a batch
  template <class P>
  static constexpr void step(P (&s)[kPlanes], P g, const Rates& r) {
    const P rate(r.learning_rate);
    s[0] = s[0] - rate * (g + P(r.l2) * s[0]);
    if (r.l1 > 0) s[0] = shrink(s[0], rate * P(r.l1));
  }
};

struct AdaGrad {
  static constexpr int kPlanes = 2;
  static constexpr bool kPerEntry = true;
  template <class P>
  static constexpr void step(P (&s)[kPlanes], P g, const Rates& r) {
    g = g + P(r.l2) * s[0];
    s[1] = s[1] + g * g;
    const P rate = P(r.learning_rate) * inverse_root(s[1]);
    s[0] = s[0] - rate * g;
    if (r.l1 > 0) s[0] = shrink(s[0], rate * P(r.l1));
  }
};

struct Ftrl {
  static constexpr int kPlanes = 3;  // w, z, n
  static constexpr bool kPerEntry = false;
  template <class P>
  static constexpr void step(P (&s)[kPlanes], P g, const Rates& r) {
    const P n = s[2] + g * g;
    const P root_n = root(n);
    s[1] = s[1] + g - (root_n - root(s[2])) * P(1 / r.learning_rate) * s[0];
    s[2] = n;
    s[0] = weight(s[1], root_n, r);
  }
  // After z and n were changed from outside, as where copies meet. Sums of weights would fit
  // neither, and what does not fit grows with every step.
  template <class P>
  static constexpr void follow(P (&s)[kPlanes], const Rates& r) {
    s[0] = weight(s[1], root(s[2]), r);
  }
  template <class P>
  static constexpr P weight(P z, P root_n, const Rates& r) {
    const P strength = (P(r.beta) + root_n) * P(1 / r.learning_rate) + P(r.l2);
    return P(0) - shrink(z, P(r.l1)) / strength;
  }
};

struct Adam {
  static constexpr int kPlanes = 3;  // w, m, v
  static constexpr bool kPerEntry = true;
  static constexpr float kDecay1 = 0.9f;
  static constexpr float kDecay2 = 0.999f;
  template <class P>
  static constexpr void step(P (&s)[kPlanes], P g, const Rates& r) {
    g = g + P(r.l2) * s[0];
    s[1] = P(kDecay1) * s[1] + P(1 - kDecay1) * g;
    s[2] = P(kDecay2) * s[2] + P(1 - kDecay2) * g * g;
    const P rate = P(r.learning_rate * r.step_root) / (root(s[2]) + P(r.small));
    s[0] = s[0] - rate * s[1];
    if (r.l1 > 0) s[0] = shrink(s[0], rate * P(r.l1));
  }
};

struct GradientSum {
  static constexpr int kPlanes = 2;
  static constexpr bool kPerEntry = false;
  template <class P>
  static constexpr void step(P (&s)[kPlanes], P g, const Rates& /*r*/) {
    s[1] = s[1] + g;
  }
};

// The rates of update `t`, from 1; `entries` of a batch use the weight.
template <class O>
constexpr Rates of_step(Rates r, [[maybe_unused]] float t) {
  if constexpr (requires { O::kDecay1; }) {
    const float second = std::sqrt(1 - std::pow(O::kDecay2, t));
    r.step_root = second / (1 - std::pow(O::kDecay1, t));
    r.small *= second;
  }
  return r;
}
template <class O>
constexpr Rates of_entries(Rates r, float entries) {
  if constexpr (O::kPerEntry) {
    r.l1 *= entries;
    r.l2 *= entries;
  }
  return r;
}

}  // namespace motley::wide
