// moe/language_model/dense.h: the parts of the language model that every worker has: embedding,
// causal self-attention, normalisation, scores of the next character; forward and backward on a
// piece of a batch. The mixture between them belongs to whoever calls.
//
// A piece is a number of sequences that never changes, so that a piece's numbers are the same bits
// whoever works on it, beside whatever else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace motley::moe {

struct DenseShape {
  std::size_t vocabulary = 0;
  std::size_t width = 0;
  std::size_t heads = 1;   // a divisor of width
  std::size_t length = 0;  // characters of a sequence
  std::size_t layers = 1;
  std::size_t experts = 1;
};

// A parameter's place in the flat array.
struct DensePlace {
  std::string name;  // "layer.0.attention.in", …
  std::vector<std::size_t> shape;
  std::size_t first = 0;
  std::size_t count = 0;
};

// The places of all parameters: token [V, d], of the character before [V, d], position [L, d]; of
// each layer attention.norm [d], attention.in [3d, d], attention.out [d, d], mixture.norm [d],
// gate [E, d], which is the caller's; last norm [d], scores [V, d].
class DenseLayout {
 public:
  explicit DenseLayout(const DenseShape& shape);

  const DenseShape& shape() const noexcept { return shape_; }
  const std::vector<DensePlace>& places() const noexcept { return places_; }
  std::size_t count() const noexcept { return places_.back().first + places_.back().count; }

  enum Part : std::uint8_t { kAttentionNorm, kAttentionIn, kAttentionOut, kMixtureNorm, kGate };
  enum Whole : std::uint8_t { kToken, kBefore, kPosition, kNorm, kScores };
  template <class T>
  std::span<T> of(std::span<T> flat, std::size_t layer, Part part) const {
    return at(flat, 3 + layer * 5 + part);
  }
  template <class T>
  std::span<T> of(std::span<T> flat, Whole whole) const {
    return at(flat, whole <= kPosition ? std::size_t{whole} : places_.size() - 5 + whole);
  }

 private:
  template <class T>
  std::span<T> at(std::span<T> flat, std::size_t i) const {
    return flat.subspan(places_[i].first, places_[i].count);
  }

  DenseShape shape_;
  std::vector<DensePlace> places_;
};

// One piece on its way through the model. All calls in the order of the layers, backward in the
// reverse; `values` and `gradients` are flat, gradients are added to.
template <class T>
class DensePiece {
 public:
  DensePiece(const DenseLayout& layout, std::size_t sequences);

  // characters [sequences * length], each below the vocabulary.
  void embed(std::span<const T> values, std::span<const std::uint16_t> characters);
  // What the mixture of `layer` gets, [rows, width]: behind attention and a normalisation.
  std::span<const T> attend(std::span<const T> values, std::size_t layer);
  // What it gives, which is added to what passes it by.
  void add_mixture(std::span<const T> y);
  // The sum over characters of the negative logarithms of their probabilities.
  double loss(std::span<const T> values, std::span<const std::uint16_t> next);

  // Of loss * weight.
  void start_backward(std::span<const T> values, std::span<T> gradients, T weight);
  // d(objective)/d(y) of the last layer that has not gone backward.
  std::span<const T> mixture_gradient() const noexcept { return dx_; }
  // With d(objective)/d(what the mixture got).
  void attend_backward(std::span<const T> values, std::span<T> gradients, std::size_t layer,
                       std::span<const T> dmixture);
  void embed_backward(std::span<T> gradients);

  std::size_t rows() const noexcept { return rows_; }

 private:
  struct Layer {                                   // what backward needs
    std::vector<T> x, normed, qkv, shares, mixed;  // shares [sequences, heads, length, length]
    std::vector<T> before_mixture, to_mixture;
  };
  void attention_of(Layer& layer, std::size_t sequence, std::size_t head);
  void attention_backward_of(const Layer& layer, std::size_t sequence, std::size_t head,
                             std::span<const T> dmixed, std::span<T> dqkv);

  const DenseLayout& layout_;
  std::size_t rows_;
  std::size_t sequences_;
  std::vector<std::uint16_t> characters_, next_;
  std::vector<Layer> layers_;
  std::vector<T> x_, dx_;
  std::vector<T> last_, normed_, probability_;  // of the scores
};

}  // namespace motley::moe
