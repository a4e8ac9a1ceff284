// test/support/random_elements.h: elements of random bits, of every kind of float among them, and
// how results on them are compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <type_traits>
#include <vector>

namespace motley::test {

template <class T>
std::vector<T> random_bits(std::size_t n, std::mt19937_64& random) {
  std::vector<T> elements(n);
  for (T& x : elements) {
    const std::uint64_t bits = random();
    std::memcpy(static_cast<void*>(&x), &bits, sizeof(x));
  }
  return elements;
}

template <class T>
bool is_nan(T x) {
  if constexpr (std::is_integral_v<T>)
    return false;
  else
    return std::isnan(static_cast<double>(static_cast<float>(x)));
}

// Bits equal; of NaN only that it is one: which of two survives addition is up to the processor.
template <class T>
bool alike(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 || (is_nan(a) && is_nan(b));
}

// The first index at which two vectors are not alike; their size if there is none.
template <class T>
std::size_t first_difference(const std::vector<T>& a, const std::vector<T>& b) {
  std::size_t i = 0;
  while (i < a.size() && i < b.size() && alike(a[i], b[i])) ++i;
  return i;
}

}  // namespace motley::test
