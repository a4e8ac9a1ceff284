#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/error.h"
#include "runtime/layer/layer.h"

namespace motley::runtime {
namespace {

// Sums are of doubles, whatever T is: they are what workers add up, and in double the variance of
// floats loses nothing where it is a difference of sums.
template <class T>
class BatchNormLayer final : public Layer<T> {
 public:
  BatchNormLayer(const BatchNorm& options, const ImageShape& shape, Communicator* statistics)
      : options_(options),
        shape_(shape),
        statistics_(statistics),
        running_mean_(shape.channels, T{0}),
        running_variance_(shape.channels, T{1}),
        mean_(shape.channels),
        inverse_deviation_(shape.channels) {}

  const char* kind() const noexcept override { return "norm"; }
  ImageShape output() const noexcept override { return shape_; }
  std::vector<Shape> parameters() const override {
    return {{"scale", {shape_.channels}}, {"shift", {shape_.channels}}};
  }
  void place(std::vector<Slot<T>> slots, std::mt19937_64& /*random*/) override {
    slots_ = std::move(slots);
    std::fill(slots_[0].values.begin(), slots_[0].values.end(), T{1});
  }
  void list(const std::string& prefix, State& state) override {
    const std::vector<std::size_t> shape = {shape_.channels};
    state.add({prefix + "running_mean", shape, running_mean_, StatePolicy::kAverage});
    state.add({prefix + "running_variance", shape, running_variance_, StatePolicy::kAverage,
               prefix + "running_mean"});
  }

  void forward(std::span<const T> in, std::span<T> out, std::size_t rows, Mode mode) override {
    if (mode == Mode::kTrain) {
      find_statistics(in, rows);
    } else {
      for (std::size_t c = 0; c < shape_.channels; ++c) {
        normalise_by(c, static_cast<double>(running_mean_[c]),
                     static_cast<double>(running_variance_[c]));
      }
    }
    for_each_pixel(rows, [&](std::size_t c, std::size_t i) {
      out[i] = static_cast<T>(normal(c, in[i]) * static_cast<double>(slots_[0].values[c]) +
                              static_cast<double>(slots_[1].values[c]));
    });
  }

  // With x' = (x - mean) / deviation and n values: d_in = scale / deviation * (d_out - sum(d_out)/n
  // - x' sum(d_out x')/n), the sums over all workers; each worker's own are the gradients.
  void backward(std::span<const T> in, std::span<const T> d_out, std::optional<std::span<T>> d_in,
                std::size_t rows) override {
    std::vector<double> sums(2 * shape_.channels);  // of d_out x' and of d_out
    for_each_pixel(rows, [&](std::size_t c, std::size_t i) {
      sums[c] += static_cast<double>(d_out[i]) * normal(c, in[i]);
      sums[shape_.channels + c] += static_cast<double>(d_out[i]);
    });
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      slots_[0].gradients[c] += static_cast<T>(sums[c]);
      slots_[1].gradients[c] += static_cast<T>(sums[shape_.channels + c]);
    }
    if (!d_in) return;
    add_up(sums);
    for_each_pixel(rows, [&](std::size_t c, std::size_t i) {
      const double mean = sums[shape_.channels + c] / count_, slope = sums[c] / count_;
      const double d = static_cast<double>(d_out[i]) - mean - normal(c, in[i]) * slope;
      (*d_in)[i] =
          static_cast<T>(d * inverse_deviation_[c] * static_cast<double>(slots_[0].values[c]));
    });
  }

 private:
  // body(channel, index)
  template <class Body>
  void for_each_pixel(std::size_t rows, Body body) const {
    std::size_t i = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t c = 0; c < shape_.channels; ++c) {
        for (std::size_t pixel = 0; pixel < shape_.pixels(); ++pixel, ++i) body(c, i);
      }
    }
  }
  double normal(std::size_t c, T x) const {
    return (static_cast<double>(x) - mean_[c]) * inverse_deviation_[c];
  }
  void normalise_by(std::size_t c, double mean, double variance) {
    mean_[c] = mean;
    inverse_deviation_[c] = 1 / std::sqrt(variance + options_.epsilon);
  }
  void add_up(std::vector<double>& sums) {
    if (statistics_ != nullptr) statistics_->all_reduce(sums, ReduceOp::kSum).wait();
  }

  void find_statistics(std::span<const T> in, std::size_t rows) {
    std::vector<double> sums(2 * shape_.channels + 1);  // of x and x^2; the number of values
    for_each_pixel(rows, [&](std::size_t c, std::size_t i) {
      const double x = static_cast<double>(in[i]);
      sums[c] += x;
      sums[shape_.channels + c] += x * x;
    });
    sums.back() = static_cast<double>(rows * shape_.pixels());
    add_up(sums);
    count_ = sums.back();
    if (count_ == 0) return;
    if (count_ == 1) {
      throw Error(ErrorCode::kInvalid,
                  "BatchNorm: 1 value for each channel, which has no variance. Train on at least 2 "
                  "rows.");
    }
    for (std::size_t c = 0; c < shape_.channels; ++c) {
      const double mean = sums[c] / count_;
      const double variance =
          std::max(sums[shape_.channels + c] / count_ - mean * mean, 0.0);  // not below by rounding
      normalise_by(c, mean, variance);
      follow(running_mean_[c], mean);
      follow(running_variance_[c], variance * count_ / (count_ - 1));
    }
  }
  void follow(T& running, double batch) const {
    running += static_cast<T>(options_.momentum * (batch - static_cast<double>(running)));
  }

  BatchNorm options_;
  ImageShape shape_;
  Communicator* statistics_;
  std::vector<Slot<T>> slots_;  // scale, shift
  std::vector<T> running_mean_, running_variance_;
  std::vector<double> mean_, inverse_deviation_;  // what forward() normalised by
  double count_ = 0;                              // values that they are of, for each channel
};

}  // namespace

template <class T>
LayerPtr<T> make_layer(const BatchNorm& options, const ImageShape& in, Communicator* statistics) {
  if (!(options.momentum >= 0 && options.momentum <= 1 && options.epsilon > 0)) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("BatchNorm: momentum {}, epsilon {}. Use a momentum from 0 to 1, and an "
                    "epsilon above 0.",
                    options.momentum, options.epsilon));
  }
  return std::make_unique<BatchNormLayer<T>>(options, in, statistics);
}

template LayerPtr<float> make_layer(const BatchNorm&, const ImageShape&, Communicator*);
template LayerPtr<double> make_layer(const BatchNorm&, const ImageShape&, Communicator*);

}  // namespace motley::runtime
