// moe/scratch.h: float memory that is kept from one step to the next, so that a step allocates
// nothing: first touch of fresh pages costs more than the work on them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <span>

namespace motley::moe {

// What is in memory that nobody has written yet. NaN shows who reads it all the same.
enum class Fill : std::uint8_t { kAsItWas, kNan };

// At a multiple of 64 bytes. Move-only.
class Scratch {
 public:
  // `count` floats, whose former contents are lost.
  std::span<float> resize(std::size_t count, Fill fill = Fill::kAsItWas) {
    if (count > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_.reset(static_cast<float*>(
          ::operator new (count * sizeof(float), std::align_val_t{kAlignment})));
      capacity_ = count;
    }
    count_ = count;
    if (fill == Fill::kNan) {
      std::fill_n(memory_.get(), count, std::numeric_limits<float>::quiet_NaN());
    }
    return span();
  }
  std::span<float> span() noexcept { return {memory_.get(), count_}; }
  std::span<const float> span() const noexcept { return {memory_.get(), count_}; }
  float* data() noexcept { return memory_.get(); }
  const float* data() const noexcept { return memory_.get(); }
  std::size_t size() const noexcept { return count_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(float* memory) const noexcept {
      ::operator delete (memory, std::align_val_t{kAlignment});
    }
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t count_ = 0;
  std::size_t capacity_ = 0;
};

}  // namespace motley::moe
