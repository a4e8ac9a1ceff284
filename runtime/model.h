// runtime/model.h: models of layers (layers.h), with gradients written by hand.
//
//   Model<float> model({.height = 8, .width = 8}, mlp_classifier(10), {.seed = 1});
//   std::vector<float> d_scores(rows * 10);
//   const auto scores = model.forward(images, Mode::kTrain);
//   const Loss loss = softmax_cross_entropy<float>(scores, labels, d_scores);   // cross_entropy.h
//   model.parameters().zero_gradients();
//   model.backward(d_scores);
//   optimizer.update(model.parameters().values(), model.parameters().gradients());
//
// For float, and for double, which is exact enough to check gradients. A model's values depend on
// its seed alone. Matrix products run in the calling thread: as ranks share the cores, making a
// model sets OpenBLAS to one thread, for the whole process. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "runtime/layers.h"
#include "runtime/parameter.h"
#include "runtime/state.h"

namespace motley::runtime {

template <class T>
class Layer;  // runtime/layer/layer.h

enum class Mode : std::uint8_t { kTrain, kEvaluate };

struct ModelOptions {
  std::uint64_t seed = 0;  // of the first values; the same on all workers
  // BatchNorm takes its statistics over the batches of all workers, so that several train as one
  // would on all of their rows: each such layer is one all-reduce of 2 channels + 1 doubles in
  // forward, another of 2 channels in backward. Every worker then makes the same calls of both in
  // kTrain. Null: statistics of the worker's own batch, or micro-batch, as is needed for the same
  // bits on any number of workers (gradient_trainer.h). Must outlive the model.
  Communicator* statistics = nullptr;
};

template <class T>
class Model {
 public:
  // Elements [first, first + count) of parameters().gradients() will not change any more in this
  // backward(): they may be reduced while it goes on. Called once for each layer that has
  // parameters, the last layer first.
  using OnGradients = std::function<void(std::size_t first, std::size_t count)>;

  // Throws kInvalid, naming the layer, for one that has no output or bad options.
  Model(const ImageShape& input, const std::vector<LayerOptions>& layers,
        const ModelOptions& options);
  Model(Model&&) noexcept;
  Model& operator=(Model&&) noexcept;
  ~Model();

  // Named after kind, number among its kind, and role: "conv1.weight", "dense2.bias",
  // "norm1.scale"; in the order of layers.
  Parameters& parameters() noexcept { return *parameters_; }
  const ImageShape& input() const noexcept { return input_; }
  const ImageShape& output() const noexcept { return output_; }

  // The outputs [rows * output().count()] for in [rows * input().count()], valid until the next
  // forward(). `in` is read by backward() again and must stay until then. Zero rows are fine.
  // Throws kInvalid if `in` has no whole number of rows, or BatchNorm trains on a single value;
  // what comm's calls throw.
  std::span<const T> forward(std::span<const T> in, Mode mode);

  // Adds to parameters().gradients() the gradients of a loss whose gradient with respect to the
  // outputs of the last forward(), made in kTrain, is d_out. Throws kInvalid if there was none, or
  // d_out has another size than those outputs; what comm's calls throw.
  void backward(std::span<const T> d_out, const OnGradients& on_gradients = {});

  // Adds the parameters, and running means and variances, to `state`.
  void list(State& state);
  // Only the latter.
  void list_running(State& state);

 private:
  struct Place;  // one layer, its part of the parameters and its outputs

  ImageShape input_;
  ImageShape output_;
  std::unique_ptr<Parameters> parameters_;
  std::vector<Place> places_;
  std::span<const T> in_;  // of the last forward() in kTrain, until backward()
  std::size_t rows_ = 0;
  bool trained_ = false;  // the last forward() was in kTrain
  std::vector<T> d_out_, d_in_;
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace motley::runtime
