// moe/gate/token_map.h: maps from a token's numbers to one number per expert, and their gradients.
#pragma once

#include <memory>
#include <vector>

#include "moe/gate/rows.h"

namespace motley::moe::gate {

class TokenMap {
 public:
  virtual ~TokenMap() = default;
  // Overwrites y [E].
  virtual void forward(In x, Out y) const = 0;
  // Adds to dx, and to the parameters' gradient that the map was made with.
  virtual void backward(In x, In dy, Out dx) = 0;
};

// A map's parameters, and where their gradient is added; that is empty if backward is not called.
struct MapParameters {
  In value;
  Out gradient;
};

// y = G x, with G [E, d].
std::unique_ptr<TokenMap> linear_map(std::size_t width, const MapParameters& parameters);

// The parts of a cosine map's parameters, one after the other.
struct CosineSizes {
  std::size_t width = 0;       // d
  std::size_t projection = 0;  // p
  std::size_t experts = 0;     // E
};

// u = P x + b; y_e = exp(min(t, log 100)) <u, s_e> / (|u| |s_e|), with P [p, d], b [p], s [E, p],
// t [1]. The gate of SwinV2-MoE, in Tutel. Norms below 1e-12 are taken as that.
std::unique_ptr<TokenMap> cosine_map(const CosineSizes& sizes, const MapParameters& parameters);

}  // namespace motley::moe::gate
