// runtime/layers.h: what a model (model.h) is made of, as data.
//
//   Model<float> model({.height = 8, .width = 8},
//                      {Conv2d{.channels = 16, .padding = 1}, BatchNorm{}, Relu{}, Pool{},
//                      Dense{10}},
//                      {.seed = 1});
//
// Between layers goes [rows][channels][height][width], one row a sample. A layer infers from the
// one before what it reads. Plain features are `channels` of 1 x 1, and Dense takes an image as the
// elements that it has, so nothing needs to be flattened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace motley::runtime {

struct ImageShape {
  std::size_t channels = 1;
  std::size_t height = 1;
  std::size_t width = 1;

  std::size_t pixels() const noexcept { return height * width; }
  std::size_t count() const noexcept { return channels * pixels(); }
};

// A bias has no use before BatchNorm, which takes the mean out again.
enum class Bias : std::uint8_t { kLearned, kNone };

// y = W x + b.
//   parameters  weight [outputs][inputs], uniform in +-sqrt(6 / inputs) at first (He et al., ICCV
//               2015); bias [outputs], 0 at first
struct Dense {
  std::size_t outputs = 0;
  Bias bias = Bias::kLearned;
};

// y = max(x, 0); the derivative at 0 is 0.
struct Relu {};

// Each output channel is the sum over input channels of their cross-correlations with kernels of
// its own. Outside of the image stands 0.
//   out         (in + 2 padding - kernel) / stride + 1, rounded down, in each direction
//   parameters  weight [channels][input channels][kernel][kernel], bias [channels]; as Dense's
struct Conv2d {
  std::size_t channels = 0;
  std::size_t kernel = 3;
  std::size_t stride = 1;
  std::size_t padding = 0;  // less than `kernel`
  Bias bias = Bias::kLearned;
};

// The largest element, or the mean, of each window. Of equal elements the first gets the gradient.
//   out  (in - size) / stride + 1, rounded down, in each direction
enum class PoolKind : std::uint8_t { kMaximum, kAverage };
struct Pool {
  PoolKind kind = PoolKind::kMaximum;
  std::size_t size = 2;
  std::size_t stride = 2;
};

// y = scale * (x - mean) / sqrt(variance + epsilon) + shift, per channel. Ioffe and Szegedy, ICML
// 2015. In training, mean and variance (over n, not n - 1) are those of the batch, over rows and
// pixels: over the batches of all workers where ModelOptions::statistics is set. Evaluation takes
// the running ones, which follow with running += momentum * (batch's - running), the batch's
// variance there over n - 1.
//   parameters  scale [channels], 1 at first; shift [channels], 0 at first
//   state       running_mean [channels], running_variance [channels]
struct BatchNorm {
  double momentum = 0.1;  // in [0, 1]
  double epsilon = 1e-5;  // above 0
};

using LayerOptions = std::variant<Dense, Relu, Conv2d, Pool, BatchNorm>;

// --- Ready classifiers, from an image to one score a class --------------------------------------

// Two hidden layers of 128 with BatchNorm and ReLU.
std::vector<LayerOptions> mlp_classifier(std::size_t classes);
// Two 3x3 convolutions (16 and 32 channels) with BatchNorm, ReLU and 2x2 maxima, then a dense
// layer. Images of at least 4 x 4.
std::vector<LayerOptions> small_convolutional_classifier(std::size_t classes);

}  // namespace motley::runtime
