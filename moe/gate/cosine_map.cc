#include <algorithm>
#include <cmath>

#include "moe/gate/token_map.h"

namespace motley::moe::gate {
namespace {

constexpr double kLeastNorm = 1e-12;
constexpr double kMostScale = 100;

// A vector over its norm.
struct Direction {
  explicit Direction(In vector)
      : unit(vector.begin(), vector.end()),
        norm(std::max(std::sqrt(dot(vector, vector)), kLeastNorm)) {
    for (double& v : unit) v /= norm;
  }
  // Turns the gradient by `unit` into that by the vector.
  void backward(Out gradient) const {
    const double along = norm > kLeastNorm ? dot(unit, gradient) : 0;
    for (std::size_t i = 0; i < unit.size(); ++i) {
      gradient[i] = (gradient[i] - along * unit[i]) / norm;
    }
  }
  std::vector<double> unit;
  double norm;
};

template <class T>
struct Parts {
  Parts(const CosineSizes& s, std::span<T> all)
      : projection(all.subspan(0, s.projection * s.width)),
        bias(all.subspan(projection.size(), s.projection)),
        embedding(all.subspan(projection.size() + bias.size(), s.experts * s.projection)),
        temperature(all.subspan(projection.size() + bias.size() + embedding.size(), 1)) {}
  std::span<T> projection, bias, embedding, temperature;
};

class CosineMap : public TokenMap {
 public:
  CosineMap(const CosineSizes& sizes, const MapParameters& parameters)
      : sizes_(sizes),
        value_(sizes, parameters.value),
        gradient_(parameters.gradient),
        log_scale_(value_.temperature[0]),
        scale_(std::min(std::exp(log_scale_), kMostScale)) {
    for (std::size_t e = 0; e < sizes.experts; ++e) {
      expert_.emplace_back(row(value_.embedding, e, sizes.projection));
    }
  }

  void forward(In x, Out y) const override {
    const Direction u(projected(x));
    for (std::size_t e = 0; e < y.size(); ++e) y[e] = scale_ * dot(u.unit, expert_[e].unit);
  }

  void backward(In x, In dy, Out dx) override {
    const Parts<double> gradient(sizes_, gradient_);
    const Direction u(projected(x));
    std::vector<double> du(sizes_.projection, 0.0);
    std::vector<double> dexpert(sizes_.projection);
    for (std::size_t e = 0; e < dy.size(); ++e) {
      add_scaled(du, scale_ * dy[e], expert_[e].unit);
      for (std::size_t i = 0; i < dexpert.size(); ++i) dexpert[i] = scale_ * dy[e] * u.unit[i];
      if (std::exp(log_scale_) < kMostScale) {
        gradient.temperature[0] += dot(dexpert, expert_[e].unit);
      }
      expert_[e].backward(dexpert);
      add_scaled(row(gradient.embedding, e, sizes_.projection), 1, dexpert);
    }
    u.backward(du);
    add_scaled(gradient.bias, 1, du);
    for (std::size_t i = 0; i < du.size(); ++i) {
      add_scaled(row(gradient.projection, i, sizes_.width), du[i], x);
      add_scaled(dx, du[i], row(value_.projection, i, sizes_.width));
    }
  }

 private:
  std::vector<double> projected(In x) const {
    std::vector<double> u(value_.bias.begin(), value_.bias.end());
    for (std::size_t i = 0; i < u.size(); ++i) {
      u[i] += dot(row(value_.projection, i, sizes_.width), x);
    }
    return u;
  }

  CosineSizes sizes_;
  Parts<const double> value_;
  Out gradient_;
  double log_scale_;
  double scale_;
  std::vector<Direction> expert_;
};

}  // namespace

std::unique_ptr<TokenMap> cosine_map(const CosineSizes& sizes, const MapParameters& parameters) {
  return std::make_unique<CosineMap>(sizes, parameters);
}

}  // namespace motley::moe::gate
