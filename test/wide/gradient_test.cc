// Shows that the three functions of every model are a score by its definition and the gradient of
// it, and that optimizers follow the formulas that they are published by; all in double, on one
// lane, where central differences have digits to spare.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "wide/ffm.h"
#include "wide/fm.h"
#include "wide/fwfm.h"
#include "wide/lane.h"
#include "wide/linear.h"
#include "wide/loss.h"
#include "wide/optimizer.h"

namespace motley::wide {
namespace {

using D = Lane<double>;
constexpr int kFields = 3;
constexpr int kFactors = 4;

struct Edge {
  int feature;
  int field;
  double value;
};

// Four features, whose factors follow each other in `v`; r is of fields.
struct Weights {
  std::vector<double> v;
  std::vector<double> r;
};

Weights random_weights(int width, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Weights w;
  for (int i = 0; i < 4 * width; ++i) w.v.push_back(uniform(random));
  for (int i = 0; i < kFields * kFields; ++i) w.r.push_back(uniform(random));
  return w;
}

struct Fm {
  static constexpr int kWidth = kFactors;
  static FactorizationMachine<D> of(const Weights& /*w*/) { return {.packs = kFactors}; }
  static double pair(const Weights& w, const Edge& a, const Edge& b) {
    double sum = 0;
    for (int d = 0; d < kFactors; ++d) {
      sum += w.v[a.feature * kWidth + d] * w.v[b.feature * kWidth + d];
    }
    return sum;
  }
};

struct Fwfm {
  static constexpr int kWidth = kFactors;
  static FieldWeightedMachine<D> of(const Weights& w) {
    return {.fields = kFields, .factors = kFactors, .shared = w.r.data()};
  }
  static double pair(const Weights& w, const Edge& a, const Edge& b) {
    const int f = std::min(a.field, b.field);
    return Fm::pair(w, a, b) * w.r[f * kFields + std::max(a.field, b.field)];
  }
};

struct Ffm {
  static constexpr int kWidth = kFields * kFactors;
  static FieldAwareMachine<D, D> of(const Weights& /*w*/) {
    return {.fields = kFields, .block = kFactors, .row = kWidth};
  }
  static double pair(const Weights& w, const Edge& a, const Edge& b) {
    double sum = 0;
    for (int d = 0; d < kFactors; ++d) {
      sum += w.v[a.feature * kWidth + b.field * kFactors + d] *
             w.v[b.feature * kWidth + a.field * kFactors + d];
    }
    return sum;
  }
};

struct CompleteFfm : Ffm {
  static FieldAwareMachine<D, D> of(const Weights& w) {
    auto m = Ffm::of(w);
    m.complete = true;
    return m;
  }
};

struct Linear1 {
  static constexpr int kWidth = 1;
  static NoFactors<D> of(const Weights& /*w*/) { return {}; }
  static double pair(const Weights& /*w*/, const Edge& /*a*/, const Edge& /*b*/) { return 0; }
};

template <class M>
double by_pairs(const Weights& w, const std::vector<Edge>& row) {
  double score = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t j = i + 1; j < row.size(); ++j) {
      score += M::pair(w, row[i], row[j]) * row[i].value * row[j].value;
    }
  }
  return score;
}

// One feature a field; fields missing; several features in a field; one feature; none.
const std::vector<std::vector<Edge>> kRows = {{{0, 0, 0.5}, {1, 1, -2}, {3, 2, 1}},
                                              {{0, 0, 0.5}, {2, 2, 3}},
                                              {{0, 1, 1}, {1, 1, 2}, {2, 0, -1}, {3, 1, 0.5}},
                                              {{2, 1, 2}},
                                              {}};

template <class M>
class Models : public testing::Test {};
using Kinds = testing::Types<Linear1, Fm, Fwfm, Ffm, CompleteFfm>;
TYPED_TEST_SUITE(Models, Kinds);

TYPED_TEST(Models, ScoreByDefinitionAndScatterItsGradient) {
  using M = TypeParam;
  const Weights w = random_weights(M::kWidth, 3);
  const std::size_t rows = std::is_same_v<M, CompleteFfm> ? 1 : kRows.size();
  for (std::size_t r = 0; r < rows; ++r) {
    const auto& row = kRows[r];
    const auto model = M::of(w);
    std::vector<double> scratch(model.scratch());
    typename std::decay_t<decltype(model)>::Sum sum;
    model.clear(sum, scratch.data());
    for (const Edge& e : row) {
      model.gather(sum, &w.v[e.feature * M::kWidth], e.field, e.value);
    }
    EXPECT_NEAR(model.score(sum), by_pairs<M>(w, row), 1e-12) << "row " << r;

    const double slope = 0.75;
    Weights gradient{std::vector<double>(w.v.size()), std::vector<double>(w.r.size())};
    for (const Edge& e : row) {
      const int at = e.feature * M::kWidth;
      model.scatter(sum, &w.v[at], e.field, e.value, slope,
                    [&](int d, D g) { gradient.v[at + d] += g.value; });
    }
    if constexpr (requires { model.shared; }) {
      model.scatter_shared(sum, slope, [&](int i, double g) { gradient.r[i] += g; });
    }
    const auto numeric = [&](std::vector<double> Weights::*part, std::size_t i) {
      Weights up = w, down = w;
      (up.*part)[i] += 1e-4;
      (down.*part)[i] -= 1e-4;
      return slope * (by_pairs<M>(up, row) - by_pairs<M>(down, row)) / 2e-4;
    };
    for (std::size_t i = 0; i < w.v.size(); ++i) {
      EXPECT_NEAR(gradient.v[i], numeric(&Weights::v, i), 1e-9) << "row " << r << " weight " << i;
    }
    for (std::size_t i = 0; i < w.r.size(); ++i) {
      EXPECT_NEAR(gradient.r[i], numeric(&Weights::r, i), 1e-9) << "row " << r << " pair " << i;
    }
  }
}

TEST(Linear, SendsWeightTimesValueAndGetsSlopeTimesValue) {
  D sum(0);
  Linear<D>::gather(sum, D(3), D(0.5));
  Linear<D>::gather(sum, D(-1), D(2));
  EXPECT_EQ(Linear<D>::score(sum), -0.5);
  EXPECT_EQ(Linear<D>::scatter(D(2), D(0.25)).value, 0.5);
}

TEST(Losses, HaveTheSlopesOfTheirLosses) {
  for (const Loss loss : {Loss::kLogistic, Loss::kSquared, Loss::kHinge, Loss::kSquaredHinge}) {
    for (const float label : {0.f, 1.f}) {
      for (double s = -4.03; s < 4; s += 0.1) {  // beside the kinks at 1 and -1
        const double numeric =
            (loss_of(loss, s + 1e-5, label) - loss_of(loss, s - 1e-5, label)) / 2e-5;
        EXPECT_NEAR(slope_of(loss, s, label), numeric, 1e-8) << name(loss) << " " << s;
      }
    }
  }
  EXPECT_EQ(loss_of(Loss::kSquared, 1, 3.5f), 3.125);
  EXPECT_EQ(loss_of(Loss::kHinge, 0.25, 0), 1.25);
  EXPECT_EQ(loss_of(Loss::kSquaredHinge, 0.25, 1), 0.5625);
}

// Three steps of each rule, against its formula written out.
class Rules : public testing::Test {
 protected:
  static constexpr double kGradients[] = {0.5, -2, 0.125};
  // a, b of `expect` are what the rule keeps beside w.
  template <class O, class Expect>
  void check(Rates rates, Expect expect, double a = 0, double b = 0) {
    D s[O::kPlanes] = {D(0.75)};
    if constexpr (O::kPlanes > 1) s[1] = D(a);
    double w = 0.75;
    for (int t = 1; t <= 3; ++t) {
      O::step(s, D(kGradients[t - 1]), of_step<O>(rates, static_cast<float>(t)));
      expect(t, kGradients[t - 1], w, a, b);
      EXPECT_NEAR(s[0].value, w, 1e-6) << "step " << t;
      if constexpr (O::kPlanes > 1) {
        EXPECT_NEAR(s[1].value, a, 1e-6) << "step " << t;
      }
      if constexpr (O::kPlanes > 2) {
        EXPECT_NEAR(s[2].value, b, 1e-6) << "step " << t;
      }
    }
  }
  static double shrunk(double x, double by) {
    return std::abs(x) <= by ? 0 : x - std::copysign(by, x);
  }
};

TEST_F(Rules, Sgd) {
  check<Sgd>({.learning_rate = 0.5f, .l1 = 0.25f, .l2 = 0.125f},
             [](int, double g, double& w, double&, double&) {
               w = shrunk(w - 0.5 * (g + 0.125 * w), 0.5 * 0.25);
             });
}

TEST_F(Rules, AdaGrad) {
  const auto expect = [](int, double g, double& w, double& sum, double&) {
    g += 0.125 * w;
    sum += g * g;
    w = shrunk(w - 0.5 * g / std::sqrt(sum), 0.5 / std::sqrt(sum) * 0.25);
  };
  check<AdaGrad>({.learning_rate = 0.5f, .l1 = 0.25f, .l2 = 0.125f}, expect, 1);
}

TEST_F(Rules, Ftrl) {
  const auto expect = [](int, double g, double& w, double& z, double& n) {
    z += g - (std::sqrt(n + g * g) - std::sqrt(n)) / 0.5 * w;
    n += g * g;
    w = -shrunk(z, 0.25) / ((1 + std::sqrt(n)) / 0.5 + 0.125);
  };
  check<Ftrl>({.learning_rate = 0.5f, .l1 = 0.25f, .l2 = 0.125f}, expect);
}

TEST_F(Rules, Adam) {
  const auto expect = [](int t, double g, double& w, double& m, double& v) {
    g += 0.125 * w;
    m = 0.9 * m + 0.1 * g;
    v = 0.999 * v + 0.001 * g * g;
    const double m_hat = m / (1 - std::pow(0.9, t));
    const double v_hat = v / (1 - std::pow(0.999, t));
    w -= 0.5 * m_hat / (std::sqrt(v_hat) + 1e-8);
  };
  check<Adam>({.learning_rate = 0.5f, .l2 = 0.125f}, expect);
}

}  // namespace
}  // namespace motley::wide
