// moe/digest.h: 64 bits of a sequence of numbers, the same on every machine; two sequences that
// differ have different ones, but for chance. Not against somebody who wants them equal.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "runtime/scramble.h"

namespace motley::moe {

class Digest {
 public:
  template <class T>
  requires std::is_integral_v<T> Digest& add(T number) noexcept {
    state_ = runtime::scramble(state_ ^ static_cast<std::uint64_t>(number));
    return *this;
  }
  // The length counts too.
  template <class T>
  Digest& add(const std::vector<T>& numbers) noexcept {
    add(numbers.size());
    for (const T& number : numbers) add(number);
    return *this;
  }
  std::uint64_t value() const noexcept { return state_; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace motley::moe
