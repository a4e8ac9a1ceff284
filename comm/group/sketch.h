// comm/group/sketch.h: a model in a few numbers: whether all of it are numbers, and how large, and
// a projection by which the controller sees how far apart the models of the workers are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "comm/view.h"

namespace motley {

enum class Magnitude : std::uint8_t {
  kUsual,      // the average of so many like these is finite however it is added; so are integers'
  kLarge,      // all are finite, but added before they are weighed they may not be
  kNotFinite,  // there is a NaN or an infinity
};

// Of `data` [n], in host memory, of which `terms` are added; at least 1. Reads it once.
Magnitude magnitude(ConstView data, int terms) noexcept;

// Linear in `data`: each of the numbers is a sum of elements with signs chosen once for all, of a
// sample of at most 65,536 elements, so that the squared distance of two sketches is, on average
// over the signs, about that of the models. Ones that are not finite count as 0.
using Sketch = std::array<float, 16>;
Sketch sketch_of(ConstView data) noexcept;

// The squared distance.
double distance2(const Sketch& a, const Sketch& b) noexcept;

}  // namespace motley
