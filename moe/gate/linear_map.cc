#include "moe/gate/token_map.h"

namespace motley::moe::gate {
namespace {

class LinearMap : public TokenMap {
 public:
  LinearMap(std::size_t width, const MapParameters& parameters)
      : width_(width), parameters_(parameters) {}

  void forward(In x, Out y) const override {
    for (std::size_t e = 0; e < y.size(); ++e) y[e] = dot(row(parameters_.value, e, width_), x);
  }
  void backward(In x, In dy, Out dx) override {
    for (std::size_t e = 0; e < dy.size(); ++e) {
      add_scaled(row(parameters_.gradient, e, width_), dy[e], x);
      add_scaled(dx, dy[e], row(parameters_.value, e, width_));
    }
  }

 private:
  std::size_t width_;
  MapParameters parameters_;
};

}  // namespace

std::unique_ptr<TokenMap> linear_map(std::size_t width, const MapParameters& parameters) {
  return std::make_unique<LinearMap>(width, parameters);
}

}  // namespace motley::moe::gate
