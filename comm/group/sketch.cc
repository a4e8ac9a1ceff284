#include "comm/group/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace motley {
namespace {

constexpr std::size_t kLanes = std::tuple_size_v<Sketch>;
constexpr std::size_t kBlocks = 4096;  // sampled, of kLanes elements each

// By their bits: those of magnitudes are in their order as integers, and what is not finite has all
// bits of the exponent set. `most` are the bits of the largest usual number.
template <class Bits>
Magnitude magnitude_of_bits(ConstView data, Bits exponent, Bits most) noexcept {
  constexpr std::size_t kAtOnce = 4096;
  constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
  constexpr Bits kMagnitude = kSign - 1;
  std::array<Bits, kAtOnce> part;
  Magnitude result = Magnitude::kUsual;
  for (std::size_t first = 0; first < data.count; first += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, data.count - first);
    std::memcpy(part.data(), data.data + first * sizeof(Bits), n * sizeof(Bits));
    const Bits room = kMagnitude - most;
    Bits sums = 0;  // with a sign where one is above `most`
    for (std::size_t i = 0; i < n; ++i) sums |= static_cast<Bits>((part[i] & kMagnitude) + room);
    if ((sums & kSign) == 0) continue;
    result = Magnitude::kLarge;
    for (std::size_t i = 0; i < n; ++i) {
      if ((part[i] & exponent) == exponent) return Magnitude::kNotFinite;
    }
  }
  return result;
}

// Half of what `terms` can share, as sums are rounded.
template <class T>
T most_usual(int terms) noexcept {
  return std::numeric_limits<T>::max() / (2 * static_cast<T>(terms));
}

std::uint64_t scrambled(std::uint64_t x) noexcept {
  x = (x ^ (x >> 31)) * 0x7fb5d329728ea185u;
  x = (x ^ (x >> 27)) * 0x81dadef4bc2dd44du;
  return x ^ (x >> 33);
}

template <class T>
Sketch sketch(ConstView data) noexcept {
  const std::size_t blocks = (data.count + kLanes - 1) / kLanes;
  const std::size_t stride = std::max<std::size_t>(1, blocks / kBlocks);
  std::array<double, kLanes> sums{};
  std::size_t sampled = 0;
  for (std::size_t block = 0; block < blocks; block += stride) {
    const std::uint64_t signs = scrambled(block + 1);
    const std::size_t n = std::min(kLanes, data.count - block * kLanes);
    sampled += n;
    for (std::size_t lane = 0; lane < n; ++lane) {
      T element;
      std::memcpy(&element, data.data + (block * kLanes + lane) * sizeof(T), sizeof(T));
      const auto value = static_cast<double>(static_cast<float>(element));
      if (std::isfinite(value)) sums[lane] += (signs >> lane & 1) != 0 ? value : -value;
    }
  }
  Sketch result{};
  if (sampled == 0) return result;
  const double scale = std::sqrt(static_cast<double>(data.count) / static_cast<double>(sampled));
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const double value = sums[lane] * scale;
    result[lane] = static_cast<float>(std::clamp(value, -1e30, 1e30));
  }
  return result;
}

}  // namespace

// 16-bit floats are added as float32, in which there is room for any sum of float16.
Magnitude magnitude(ConstView data, int terms) noexcept {
  const auto single = std::bit_cast<std::uint32_t>(most_usual<float>(terms));
  switch (data.dtype) {
    case DType::kFloat64:
      return magnitude_of_bits<std::uint64_t>(
          data, 0x7ff0000000000000u, std::bit_cast<std::uint64_t>(most_usual<double>(terms)));
    case DType::kFloat32:
      return magnitude_of_bits<std::uint32_t>(data, 0x7f800000u, single);
    case DType::kFloat16:
      return magnitude_of_bits<std::uint16_t>(data, 0x7c00u, 0x7bffu);
    case DType::kBFloat16:
      return magnitude_of_bits<std::uint16_t>(data, 0x7f80u,
                                              static_cast<std::uint16_t>(single >> 16));
    default:
      return Magnitude::kUsual;
  }
}

Sketch sketch_of(ConstView data) noexcept {
  switch (data.dtype) {
    case DType::kFloat64:
      return sketch<double>(data);
    case DType::kFloat32:
      return sketch<float>(data);
    case DType::kFloat16:
      return sketch<half>(data);
    case DType::kBFloat16:
      return sketch<bfloat16>(data);
    case DType::kInt32:
      return sketch<std::int32_t>(data);
    default:
      return {};
  }
}

double distance2(const Sketch& a, const Sketch& b) noexcept {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += d * d;
  }
  return sum;
}

}  // namespace motley
