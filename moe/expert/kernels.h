// moe/expert/kernels.h: loops of an expert's arithmetic in one thread, for the widest vectors that
// this processor has. Each result's bits depend only on its own terms: not on how many rows there
// are. What is added to goes before the terms in sums, after them in dots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "moe/layer_options.h"

namespace motley::moe::expert {

enum class Into : std::uint8_t { kReplace, kAdd };

// out [rows, columns] becomes a b, or has it added. Element (i, k) of a is at
// a[i * a_row + k * a_term].
struct Product {
  std::size_t rows = 0, columns = 0, inner = 0;
  const float* a = nullptr;
  std::size_t a_row = 0, a_term = 1;
  const float* b = nullptr;
  std::size_t b_row = 0;
  float* out = nullptr;
  std::size_t out_row = 0;
  Into into = Into::kReplace;
};

// A block of numbers between an expert's linear maps; rows are `stride` apart in all of them.
struct HiddenBlock {
  std::size_t rows = 0, columns = 0, stride = 0;
  Activation activation = Activation::kGelu;
  float* hidden = nullptr;   // W1 x, to which forward adds b1
  float* partner = nullptr;  // W3 x, to which forward adds b3; null in plain experts
  float* active = nullptr;   // out of forward: what W2 takes
  const float* b1 = nullptr;
  const float* b3 = nullptr;
};

// Gradients of such a block, as it is after forward.
struct HiddenGradient {
  HiddenBlock block;
  float* dhidden = nullptr;   // d/d(active), becomes d/d(hidden)
  float* dpartner = nullptr;  // out; null in plain experts
};

struct Kernels {
  std::size_t bits;              // of a vector
  void (*dots)(const Product&);  // b [columns, inner], a_term 1: products of rows with rows
  void (*sums)(const Product&);  // b [inner, columns]: rows of b, weighted by a
  void (*activate)(const HiddenBlock&);
  void (*activation_gradient)(const HiddenGradient&);
};

// Those that this processor can run, the widest last.
std::span<const Kernels* const> kernels_here() noexcept;
inline const Kernels& kernels() noexcept { return *kernels_here().back(); }

// By width in bits; the two wider ones only where they are compiled.
extern const Kernels kKernels128;
extern const Kernels kKernels256;
extern const Kernels kKernels512;

}  // namespace motley::moe::expert
