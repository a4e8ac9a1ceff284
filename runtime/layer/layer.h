// One layer of a model: what it computes, and the gradients of that.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "runtime/layers.h"
#include "runtime/model.h"
#include "runtime/parameter.h"
#include "runtime/state.h"

namespace motley::runtime {

// One parameter of a layer, in the model's buffers.
template <class T>
struct Slot {
  std::span<T> values;
  std::span<T> gradients;
};

template <class T>
class Layer {
 public:
  virtual ~Layer() = default;

  // "conv", "norm": its parameters are called "conv1.weight", and so on.
  virtual const char* kind() const noexcept = 0;
  virtual ImageShape output() const noexcept = 0;
  // Names without the layer's.
  virtual std::vector<Shape> parameters() const { return {}; }
  // Once, before anything else: where its parameters lie, in the order of parameters(). Gives them
  // their first values.
  virtual void place(std::vector<Slot<T>> /*slots*/, std::mt19937_64& /*random*/) {}
  // Adds what it keeps beside parameters; names begin with `prefix`.
  virtual void list(const std::string& /*prefix*/, State& /*state*/) {}

  // in [rows * inputs], out [rows * outputs].
  virtual void forward(std::span<const T> in, std::span<T> out, std::size_t rows, Mode mode) = 0;
  // After forward() of the same `in` in kTrain. Adds to its parameters' gradients, replaces d_in
  // where somebody asks for it, which is so on all workers or on none.
  virtual void backward(std::span<const T> in, std::span<const T> d_out,
                        std::optional<std::span<T>> d_in, std::size_t rows) = 0;
};

template <class T>
using LayerPtr = std::unique_ptr<Layer<T>>;

// Each throws kInvalid for options that are wrong, or do not fit the shape that comes in.
template <class T>
LayerPtr<T> make_layer(const Dense& options, const ImageShape& in);
template <class T>
LayerPtr<T> make_layer(const Relu& options, const ImageShape& in);
template <class T>
LayerPtr<T> make_layer(const Conv2d& options, const ImageShape& in);
template <class T>
LayerPtr<T> make_layer(const Pool& options, const ImageShape& in);
// `statistics` as in ModelOptions.
template <class T>
LayerPtr<T> make_layer(const BatchNorm& options, const ImageShape& in, Communicator* statistics);

// Whichever of them.
template <class T>
LayerPtr<T> make_layer(const LayerOptions& options, const ImageShape& in, Communicator* statistics);

// First values of weights: uniform in +-sqrt(6 / fan_in), drawn alike by every standard library.
template <class T>
void draw_weights(std::span<T> weights, std::size_t fan_in, std::mt19937_64& random);

}  // namespace motley::runtime
