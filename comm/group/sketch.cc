#include "comm/group/sketch.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace motley {
namespace {

constexpr std::size_t kLanes = std::tuple_size_v<Sketch>;
constexpr std::size_t kBlocks = 4096;  // sampled, of kLanes elements each

// Numbers that are not finite have all bits of the exponent set.
template <class Bits>
bool finite_bits(ConstView data, Bits exponent) noexcept {
  constexpr std::size_t kAtOnce = 4096;
  std::array<Bits, kAtOnce> part;
  for (std::size_t first = 0; first < data.count; first += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, data.count - first);
    std::memcpy(part.data(), data.data + first * sizeof(Bits), n * sizeof(Bits));
    Bits bad = 0;
    for (std::size_t i = 0; i < n; ++i) bad |= (part[i] & exponent) == exponent ? 1 : 0;
    if (bad != 0) return false;
  }
  return true;
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

bool all_finite(ConstView data) noexcept {
  switch (data.dtype) {
    case DType::kFloat64:
      return finite_bits<std::uint64_t>(data, 0x7ff0000000000000u);
    case DType::kFloat32:
      return finite_bits<std::uint32_t>(data, 0x7f800000u);
    case DType::kFloat16:
      return finite_bits<std::uint16_t>(data, 0x7c00u);
    case DType::kBFloat16:
      return finite_bits<std::uint16_t>(data, 0x7f80u);
    default:
      return true;
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
