// comm/view.h: borrowed memory with its element type, count and kind.
//
//   std::vector<float> gradients(1'000'000);
//   comm.all_reduce(gradients, ReduceOp::kSum).wait();   // vectors and spans convert to View
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/dtype.h"

namespace motley {

enum class Memory : std::uint8_t { kHost, kDevice };

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

// [count] elements of `dtype` at `data`. Byte is std::byte (View) or const std::byte (ConstView).
template <class Byte>
struct BasicView {
  Byte* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::kFloat32;
  Memory memory = Memory::kHost;

  BasicView() = default;
  BasicView(Byte* data_, std::size_t count_, DType dtype_, Memory memory_ = Memory::kHost)
      : data(data_), count(count_), dtype(dtype_), memory(memory_) {}
  template <class T>
  requires(std::is_const_v<Byte> || !std::is_const_v<T>)
      BasicView(std::span<T> values)  // NOLINT: implicit on purpose
      : BasicView(reinterpret_cast<Byte*>(values.data()), values.size(),
                  dtype_of<std::remove_const_t<T>>) {}
  template <class T>
  BasicView(std::vector<T>& values) : BasicView(std::span<T>(values)) {}  // NOLINT
  template <class T>
  requires std::is_const_v<Byte> BasicView(const std::vector<T>& values)
      : BasicView(std::span<const T>(values)) {}  // NOLINT
  template <class Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      BasicView(const BasicView<Other>& view)  // NOLINT: every View is a ConstView
      : BasicView(view.data, view.count, view.dtype, view.memory) {}

  std::size_t size_bytes() const noexcept { return count * motley::size_bytes(dtype); }
  std::span<Byte> bytes() const noexcept { return {data, size_bytes()}; }
  // Elements [first, first + n).
  BasicView slice(std::size_t first, std::size_t n) const noexcept {
    assert(first + n <= count);
    return {data == nullptr ? nullptr : data + first * motley::size_bytes(dtype), n, dtype, memory};
  }
  template <class T>
  auto as() const noexcept {
    assert(dtype_of<std::remove_const_t<T>> == dtype);
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return std::span<Element>(reinterpret_cast<Element*>(data), count);
  }
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

}  // namespace motley
