#include "moe/language_model/dense.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/gemm.h"

namespace motley::moe {
namespace {

using runtime::Factor;
using runtime::Into;
using runtime::multiply;
using runtime::transposed;

constexpr double kNormEpsilon = 1e-5;

// Row by row y = x / sqrt(mean(x^2) + epsilon) * gain; Zhang and Sennrich 2019.
template <class T>
void rms_norm(std::span<const T> x, std::span<const T> gain, std::span<T> y) {
  const std::size_t d = gain.size();
  for (std::size_t row = 0; row < x.size(); row += d) {
    T squares = 0;
    for (std::size_t i = 0; i < d; ++i) squares += x[row + i] * x[row + i];
    const T scale = 1 / std::sqrt(squares / static_cast<T>(d) + static_cast<T>(kNormEpsilon));
    for (std::size_t i = 0; i < d; ++i) y[row + i] = x[row + i] * scale * gain[i];
  }
}

template <class T>
struct NormGradients {
  std::span<T> dx;  // added to, as is dgain
  std::span<T> dgain;
};

template <class T>
void rms_norm_backward(std::span<const T> x, std::span<const T> gain, std::span<const T> dy,
                       const NormGradients<T>& out) {
  const std::size_t d = gain.size();
  for (std::size_t row = 0; row < x.size(); row += d) {
    T squares = 0, product = 0;
    for (std::size_t i = 0; i < d; ++i) {
      squares += x[row + i] * x[row + i];
      product += dy[row + i] * gain[i] * x[row + i];
    }
    const T mean = squares / static_cast<T>(d) + static_cast<T>(kNormEpsilon);
    const T scale = 1 / std::sqrt(mean);
    const T back = product * scale / (mean * static_cast<T>(d));
    for (std::size_t i = 0; i < d; ++i) {
      out.dgain[i] += dy[row + i] * x[row + i] * scale;
      out.dx[row + i] += dy[row + i] * gain[i] * scale - x[row + i] * back;
    }
  }
}

template <class T>
Factor<T> matrix(std::span<const T> data, std::size_t columns) {
  return {data.data(), data.size() / columns, columns, false};
}
template <class T>
Factor<T> matrix(const std::vector<T>& data, std::size_t columns) {
  return matrix(std::span<const T>(data), columns);
}

template <class T>
void add(std::span<T> out, std::span<const T> terms) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] += terms[i];
}

}  // namespace

DenseLayout::DenseLayout(const DenseShape& shape) : shape_(shape) {
  const std::size_t d = shape.width;
  const auto place = [&](std::string name, std::vector<std::size_t> extents) {
    std::size_t size = 1;
    for (const std::size_t extent : extents) size *= extent;
    const std::size_t first = places_.empty() ? 0 : count();
    places_.push_back({std::move(name), std::move(extents), first, size});
  };
  place("token", {shape.vocabulary, d});
  place("before", {shape.vocabulary, d});
  place("position", {shape.length, d});
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    place(fmt::format("layer.{}.attention.norm", layer), {d});
    place(fmt::format("layer.{}.attention.in", layer), {3 * d, d});
    place(fmt::format("layer.{}.attention.out", layer), {d, d});
    place(fmt::format("layer.{}.mixture.norm", layer), {d});
    place(fmt::format("layer.{}.gate", layer), {shape.experts, d});
  }
  place("norm", {d});
  place("scores", {shape.vocabulary, d});
}

template <class T>
DensePiece<T>::DensePiece(const DenseLayout& layout, std::size_t sequences)
    : layout_(layout),
      rows_(sequences * layout.shape().length),
      sequences_(sequences),
      layers_(layout.shape().layers) {
  const DenseShape& shape = layout.shape();
  const std::size_t size = rows_ * shape.width;
  for (Layer& layer : layers_) {
    for (auto* values :
         {&layer.x, &layer.normed, &layer.mixed, &layer.before_mixture, &layer.to_mixture})
      values->resize(size);
    layer.qkv.resize(3 * size);
    layer.shares.resize(sequences * shape.heads * shape.length * shape.length);
  }
  for (auto* values : {&x_, &dx_, &normed_}) values->resize(size);
  probability_.resize(rows_ * shape.vocabulary);
}

template <class T>
void DensePiece<T>::embed(std::span<const T> values, std::span<const std::uint16_t> characters) {
  const std::size_t d = layout_.shape().width, length = layout_.shape().length;
  characters_.assign(characters.begin(), characters.end());
  const auto token = layout_.of(values, DenseLayout::kToken);
  const auto before = layout_.of(values, DenseLayout::kBefore);
  const auto position = layout_.of(values, DenseLayout::kPosition);
  for (std::size_t row = 0; row < rows_; ++row) {
    const std::size_t place = row % length;
    for (std::size_t i = 0; i < d; ++i) {
      x_[row * d + i] = token[characters[row] * d + i] + position[place * d + i];
      if (place > 0) x_[row * d + i] += before[characters[row - 1] * d + i];
    }
  }
}

// Softmax of q k / sqrt(head's width) over what came before, times v.
template <class T>
void DensePiece<T>::attention_of(Layer& layer, std::size_t sequence, std::size_t head) {
  const DenseShape& shape = layout_.shape();
  const std::size_t d = shape.width, n = shape.length, h = d / shape.heads;
  const T scale = 1 / std::sqrt(static_cast<T>(h));
  const T* const first = layer.qkv.data() + sequence * n * 3 * d + head * h;
  T* const shares = layer.shares.data() + (sequence * shape.heads + head) * n * n;
  for (std::size_t t = 0; t < n; ++t) {
    const T* const q = first + t * 3 * d;
    T* const share = shares + t * n;
    T most = std::numeric_limits<T>::lowest(), sum = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      const T* const k = first + s * 3 * d + d;
      T score = 0;
      for (std::size_t i = 0; i < h; ++i) score += q[i] * k[i];
      share[s] = score * scale;
      most = std::max(most, share[s]);
    }
    for (std::size_t s = 0; s <= t; ++s) sum += share[s] = std::exp(share[s] - most);
    T* const out = layer.mixed.data() + (sequence * n + t) * d + head * h;
    std::fill(out, out + h, T{0});
    for (std::size_t s = 0; s <= t; ++s) {
      share[s] /= sum;
      const T* const v = first + s * 3 * d + 2 * d;
      for (std::size_t i = 0; i < h; ++i) out[i] += share[s] * v[i];
    }
  }
}

template <class T>
void DensePiece<T>::attention_backward_of(const Layer& layer, std::size_t sequence,
                                          std::size_t head, std::span<const T> dmixed,
                                          std::span<T> dqkv) {
  const DenseShape& shape = layout_.shape();
  const std::size_t d = shape.width, n = shape.length, h = d / shape.heads;
  const T scale = 1 / std::sqrt(static_cast<T>(h));
  const std::size_t start = sequence * n * 3 * d + head * h;
  const T* const first = layer.qkv.data() + start;
  T* const dfirst = dqkv.data() + start;
  const T* const shares = layer.shares.data() + (sequence * shape.heads + head) * n * n;
  std::vector<T> dshare(n);
  for (std::size_t t = 0; t < n; ++t) {
    const T* const dout = dmixed.data() + (sequence * n + t) * d + head * h;
    const T* const share = shares + t * n;
    T mean = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      const T* const v = first + s * 3 * d + 2 * d;
      T* const dv = dfirst + s * 3 * d + 2 * d;
      dshare[s] = 0;
      for (std::size_t i = 0; i < h; ++i) {
        dshare[s] += dout[i] * v[i];
        dv[i] += share[s] * dout[i];
      }
      mean += share[s] * dshare[s];
    }
    const T* const q = first + t * 3 * d;
    T* const dq = dfirst + t * 3 * d;
    for (std::size_t s = 0; s <= t; ++s) {
      const T dscore = share[s] * (dshare[s] - mean) * scale;
      const T* const k = first + s * 3 * d + d;
      T* const dk = dfirst + s * 3 * d + d;
      for (std::size_t i = 0; i < h; ++i) {
        dq[i] += dscore * k[i];
        dk[i] += dscore * q[i];
      }
    }
  }
}

template <class T>
std::span<const T> DensePiece<T>::attend(std::span<const T> values, std::size_t index) {
  const std::size_t d = layout_.shape().width;
  Layer& layer = layers_[index];
  layer.x = x_;
  rms_norm<T>(layer.x, layout_.of(values, index, DenseLayout::kAttentionNorm), layer.normed);
  multiply(matrix(layer.normed, d),
           transposed(matrix(layout_.of(values, index, DenseLayout::kAttentionIn), d)),
           layer.qkv.data(), Into::kReplace);
  for (std::size_t sequence = 0; sequence < sequences_; ++sequence) {
    for (std::size_t head = 0; head < layout_.shape().heads; ++head)
      attention_of(layer, sequence, head);
  }
  multiply(matrix(layer.mixed, d),
           transposed(matrix(layout_.of(values, index, DenseLayout::kAttentionOut), d)), x_.data(),
           Into::kAdd);
  layer.before_mixture = x_;
  rms_norm<T>(layer.before_mixture, layout_.of(values, index, DenseLayout::kMixtureNorm),
              layer.to_mixture);
  return layer.to_mixture;
}

template <class T>
void DensePiece<T>::add_mixture(std::span<const T> y) {
  add<T>(x_, y);
}

template <class T>
double DensePiece<T>::loss(std::span<const T> values, std::span<const std::uint16_t> next) {
  const std::size_t d = layout_.shape().width, v = layout_.shape().vocabulary;
  next_.assign(next.begin(), next.end());
  last_ = x_;
  rms_norm<T>(last_, layout_.of(values, DenseLayout::kNorm), normed_);
  multiply(matrix(normed_, d), transposed(matrix(layout_.of(values, DenseLayout::kScores), d)),
           probability_.data(), Into::kReplace);
  double total = 0;
  for (std::size_t row = 0; row < rows_; ++row) {
    const auto scores = std::span(probability_).subspan(row * v, v);
    const T most = *std::ranges::max_element(scores);
    T sum = 0;
    for (T& score : scores) sum += score = std::exp(score - most);
    for (T& score : scores) score /= sum;
    total -= std::log(std::max(static_cast<double>(scores[next[row]]), 1e-30));
  }
  return total;
}

template <class T>
void DensePiece<T>::start_backward(std::span<const T> values, std::span<T> gradients, T weight) {
  const std::size_t d = layout_.shape().width, v = layout_.shape().vocabulary;
  for (std::size_t row = 0; row < rows_; ++row) {
    const auto scores = std::span(probability_).subspan(row * v, v);
    scores[next_[row]] -= 1;
    for (T& score : scores) score *= weight;
  }
  multiply(transposed(matrix(probability_, v)), matrix(normed_, d),
           layout_.of(gradients, DenseLayout::kScores).data(), Into::kAdd);
  std::vector<T> dnormed(normed_.size());
  multiply(matrix(probability_, v), matrix(layout_.of(values, DenseLayout::kScores), d),
           dnormed.data(), Into::kReplace);
  std::ranges::fill(dx_, T{0});
  rms_norm_backward<T>(last_, layout_.of(values, DenseLayout::kNorm), dnormed,
                       {dx_, layout_.of(gradients, DenseLayout::kNorm)});
}

template <class T>
void DensePiece<T>::attend_backward(std::span<const T> values, std::span<T> gradients,
                                    std::size_t index, std::span<const T> dmixture) {
  const std::size_t d = layout_.shape().width;
  const Layer& layer = layers_[index];
  const auto value = [&](DenseLayout::Part part) { return layout_.of(values, index, part); };
  const auto gradient = [&](DenseLayout::Part part) { return layout_.of(gradients, index, part); };
  rms_norm_backward<T>(layer.before_mixture, value(DenseLayout::kMixtureNorm), dmixture,
                       {dx_, gradient(DenseLayout::kMixtureNorm)});
  multiply(transposed(matrix(dx_, d)), matrix(layer.mixed, d),
           gradient(DenseLayout::kAttentionOut).data(), Into::kAdd);
  std::vector<T> dmixed(dx_.size()), dqkv(layer.qkv.size()), dnormed(dx_.size());
  multiply(matrix(dx_, d), matrix(value(DenseLayout::kAttentionOut), d), dmixed.data(),
           Into::kReplace);
  for (std::size_t sequence = 0; sequence < sequences_; ++sequence) {
    for (std::size_t head = 0; head < layout_.shape().heads; ++head)
      attention_backward_of(layer, sequence, head, dmixed, dqkv);
  }
  multiply(transposed(matrix(dqkv, 3 * d)), matrix(layer.normed, d),
           gradient(DenseLayout::kAttentionIn).data(), Into::kAdd);
  multiply(matrix(dqkv, 3 * d), matrix(value(DenseLayout::kAttentionIn), d), dnormed.data(),
           Into::kReplace);
  rms_norm_backward<T>(layer.x, value(DenseLayout::kAttentionNorm), dnormed,
                       {dx_, gradient(DenseLayout::kAttentionNorm)});
}

template <class T>
void DensePiece<T>::embed_backward(std::span<T> gradients) {
  const std::size_t d = layout_.shape().width, length = layout_.shape().length;
  const auto token = layout_.of(gradients, DenseLayout::kToken);
  const auto before = layout_.of(gradients, DenseLayout::kBefore);
  const auto position = layout_.of(gradients, DenseLayout::kPosition);
  for (std::size_t row = 0; row < rows_; ++row) {
    const std::size_t place = row % length;
    for (std::size_t i = 0; i < d; ++i) {
      token[characters_[row] * d + i] += dx_[row * d + i];
      position[place * d + i] += dx_[row * d + i];
      if (place > 0) before[characters_[row - 1] * d + i] += dx_[row * d + i];
    }
  }
}

template class DensePiece<float>;
template class DensePiece<double>;

}  // namespace motley::moe
