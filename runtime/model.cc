#include "runtime/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "comm/error.h"
#include "runtime/gemm.h"
#include "runtime/layer/layer.h"
#include "runtime/seed.h"

namespace motley::runtime {
template <class T>
struct Model<T>::Place {
  LayerPtr<T> layer;
  std::string prefix;     // "conv1."
  std::size_t first = 0;  // its parameters, among all
  std::size_t count = 0;
  std::size_t outputs = 0;  // of a row
  std::vector<T> out;
};

template <class T>
Model<T>::Model(const ImageShape& input, const std::vector<LayerOptions>& layers,
                const ModelOptions& options)
    : input_(input), output_(input) {
  if (input.count() == 0 || layers.empty()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: {} layers over {} x {} x {} inputs. Use at least one of each.",
                            layers.size(), input.channels, input.height, input.width));
  }
  use_one_thread_for_products();
  std::vector<Shape> shapes;
  std::map<std::string, int> of_kind;
  std::size_t first = 0;
  for (const LayerOptions& one : layers) {
    Place place{.layer = make_layer<T>(one, output_, options.statistics)};
    output_ = place.layer->output();
    const std::string kind = place.layer->kind();
    place.prefix = fmt::format("{}{}.", kind, ++of_kind[kind]);
    place.first = first;
    place.outputs = output_.count();
    for (Shape& shape : place.layer->parameters()) {
      place.count += shape.count();
      shapes.push_back({place.prefix + shape.name, std::move(shape.dimensions)});
    }
    first += place.count;
    places_.push_back(std::move(place));
  }
  parameters_ = std::make_unique<Parameters>(std::move(shapes), dtype_of<T>);
  std::mt19937_64 random = make_generator({.seed = options.seed, .purpose = "model"});
  for (Place& place : places_) {
    std::vector<Slot<T>> slots;
    for (const Shape& shape : place.layer->parameters()) {
      const std::string name = place.prefix + shape.name;
      slots.push_back({parameters_->values(name).template as<T>(),
                       parameters_->gradients(name).template as<T>()});
    }
    place.layer->place(std::move(slots), random);
  }
}

template <class T>
Model<T>::Model(Model&&) noexcept = default;
template <class T>
Model<T>& Model<T>::operator=(Model&&) noexcept = default;
template <class T>
Model<T>::~Model() = default;

template <class T>
std::span<const T> Model<T>::forward(std::span<const T> in, Mode mode) {
  if (in.size() % input_.count() != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("model: {} inputs are no whole number of rows of {}. Pass whole rows.",
                            in.size(), input_.count()));
  }
  trained_ = false;
  rows_ = in.size() / input_.count();
  in_ = in;
  for (Place& place : places_) {
    place.out.resize(rows_ * place.outputs);
    place.layer->forward(in, place.out, rows_, mode);
    in = place.out;
  }
  trained_ = mode == Mode::kTrain;
  return in;
}

template <class T>
void Model<T>::backward(std::span<const T> d_out, const OnGradients& on_gradients) {
  if (!trained_ || d_out.size() != places_.back().out.size()) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("model: backward() with {} gradients after forward() {} of {} outputs. Pass "
                    "one for each output of the forward() in kTrain before it.",
                    d_out.size(),
                    trained_ ? "in kTrain" : "in kEvaluate, or none, or with backward",
                    places_.back().out.size()));
  }
  trained_ = false;
  d_out_.assign(d_out.begin(), d_out.end());
  for (std::size_t i = places_.size(); i-- > 0;) {
    Place& place = places_[i];
    const std::span<const T> in = i == 0 ? in_ : std::span<const T>(places_[i - 1].out);
    d_in_.resize(in.size());
    const std::optional<std::span<T>> d_in =
        i == 0 ? std::nullopt : std::optional<std::span<T>>(d_in_);
    place.layer->backward(in, d_out_, d_in, rows_);
    if (on_gradients && place.count > 0) on_gradients(place.first, place.count);
    std::swap(d_out_, d_in_);
  }
}

template <class T>
void Model<T>::list(State& state) {
  parameters_->list(state);
  list_running(state);
}

template <class T>
void Model<T>::list_running(State& state) {
  for (Place& place : places_) place.layer->list(place.prefix, state);
}

template class Model<float>;
template class Model<double>;

}  // namespace motley::runtime
