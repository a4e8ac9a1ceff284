#include "moe/language_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>

#include "comm/error.h"
#include "moe/checkpoint.h"
#include "moe/expert_layer.h"
#include "moe/gate.h"
#include "moe/language_model/dense.h"
#include "moe/language_model/options.h"
#include "moe/placement.h"
#include "runtime/optimizer.h"
#include "runtime/seed.h"

namespace motley::moe {
namespace {

using Flat = std::vector<float>;

std::size_t at(int i) { return static_cast<std::size_t>(i); }

DenseLayout layout_of(const LanguageModelOptions& options, int workers) {
  validate(options);
  if (options.pieces % workers != 0 || options.experts % workers != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("language model: {} workers for {} pieces and {} experts. Take a "
                            "number that divides both.",
                            workers, options.pieces, options.experts));
  }
  return DenseLayout({.vocabulary = at(options.vocabulary),
                      .width = at(options.width),
                      .heads = at(options.heads),
                      .length = at(options.length),
                      .layers = at(options.layers),
                      .experts = at(options.experts)});
}

// Uniform in [-1, 1) times `scale`.
void draw(std::span<float> values, double scale, const runtime::Seed& seed) {
  auto random = runtime::make_generator(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (float& value : values) value = static_cast<float>(scale * uniform(random));
}

// Sums neighbours until one is left, in place.
void add_as_tree(std::vector<Flat>& terms) {
  for (std::size_t step = 1; step < terms.size(); step *= 2) {
    for (std::size_t i = 0; i + step < terms.size(); i += 2 * step) {
      for (std::size_t j = 0; j < terms[i].size(); ++j) terms[i][j] += terms[i + step][j];
    }
  }
}

}  // namespace

class LanguageModel::Impl {
 public:
  Impl(Communicator& comm, const LanguageModelOptions& options)
      : options_(options),
        comm_(comm),
        layout_(layout_of(options, comm.size())),
        values_(layout_.count()) {
    initialize_dense();
    const Placement placement = Placement::grid({.experts = options.experts, .ranks = comm.size()});
    for (int layer = 0; layer < options.layers; ++layer) add_layer(placement, layer);
    const int pieces = options.pieces / comm.size();
    for (int piece = 0; piece < pieces; ++piece)
      pieces_.emplace_back(layout_, at(options.batch / options.pieces));
    gradients_.assign(at(pieces), Flat(layout_.count()));
    adam_ = std::make_unique<runtime::Adam>(View(values_), adam_options());
  }

  Report step(std::span<const std::uint16_t> characters) {
    const Report report = forward(characters);
    backward();
    const double rate = options_.learning_rate * std::min(1.0, static_cast<double>(steps_ + 1) /
                                                                   std::max(1, options_.warmup));
    update(rate);
    ++steps_;
    return report;
  }

  Report forward(std::span<const std::uint16_t> characters) {
    const std::size_t sequence = at(options_.length) + 1;
    if (characters.size() != at(options_.batch) * sequence) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("language model: {} characters, but a batch is {} sequences of {}. "
                              "Pass a whole batch.",
                              characters.size(), options_.batch, sequence));
    }
    cut(characters);
    const std::size_t first = at(comm_.rank()) * pieces_.size();
    for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].embed(values_, inputs_[first + i]);
    std::vector<double> losses(pieces_.size()), balance(pieces_.size());
    for (int layer = 0; layer < options_.layers; ++layer) mix(layer, balance);
    for (std::size_t i = 0; i < pieces_.size(); ++i)
      losses[i] = pieces_[i].loss(values_, targets_[first + i]);
    const double tokens = static_cast<double>(options_.batch) * options_.length;
    return {total(losses) / tokens, total(balance) / options_.pieces};
  }

  runtime::State state() {
    runtime::State state;
    for (const DensePlace& place : layout_.places()) {
      state.add({place.name, place.shape, View(values_).slice(place.first, place.count),
                 runtime::StatePolicy::kAverage});
    }
    adam_->list(state);
    state.add("steps", steps_, runtime::StatePolicy::kMaximum);
    for (int layer = 0; layer < options_.layers; ++layer) {
      Layer& it = *layers_[at(layer)];
      std::vector<ExpertState> here;
      for (std::size_t e = 0; e < it.adams.size(); ++e)
        here.push_back({it.mixture.experts()[e].expert, expert_state(it, e)});
      list_experts(state, {fmt::format("layer.{}.", layer), options_.experts, here.front().items},
                   here);
    }
    return state;
  }

  const LanguageModelOptions options_;
  std::int64_t steps_ = 0;

  struct Layer {
    Layer(Communicator& comm, const Placement& placement, const ExpertLayerOptions& options)
        : mixture(comm, placement, options) {}
    std::span<float> values(std::size_t expert) { return slot(mixture.parameters(), expert); }
    std::span<float> gradients(std::size_t expert) { return slot(mixture.gradients(), expert); }
    std::span<float> slot(std::span<float> all, std::size_t expert) const {
      const std::size_t count = mixture.shard_shape().slot_count();
      return all.subspan(expert * count, count);
    }
    std::unique_ptr<Gate> gate;      // its parameters are a copy
    std::vector<GateForward> gated;  // of each piece
    ExpertLayer mixture;
    std::vector<std::unique_ptr<runtime::Adam>> adams;  // of each expert here
    Routing routing;
    Flat x, y;
  };
  Layer& layer(int index) {
    if (index >= 0 && index < options_.layers) return *layers_[at(index)];
    throw Error(ErrorCode::kInvalid, fmt::format("language model: layer {} of {}. There is none.",
                                                 index, options_.layers));
  }

 private:
  runtime::AdamOptions adam_options() const {
    return {.learning_rate = options_.learning_rate, .beta2 = 0.99};
  }

  void initialize_dense() {
    for (const DensePlace& place : layout_.places()) {
      const auto values = std::span(values_).subspan(place.first, place.count);
      if (place.shape.size() == 1) {
        std::ranges::fill(values, 1.0f);  // gains of normalisations
        continue;
      }
      draw(values, std::sqrt(1.0 / options_.width), {.seed = options_.seed, .purpose = place.name});
    }
  }

  void add_layer(const Placement& placement, int index) {
    layers_.push_back(std::make_unique<Layer>(comm_, placement, experts_of(options_)));
    Layer& layer = *layers_.back();
    layer.gate = make_gate(gate_of(options_));
    for (std::size_t e = 0; e < layer.mixture.experts().size(); ++e) {
      draw(
          layer.values(e), std::sqrt(1.0 / options_.width),
          {.seed = options_.seed,
           .purpose = fmt::format("layer {} expert {}", index, layer.mixture.experts()[e].expert)});
      layer.adams.push_back(std::make_unique<runtime::Adam>(View(layer.values(e)), adam_options()));
    }
  }

  static runtime::State expert_state(Layer& layer, std::size_t expert) {
    runtime::State state;
    const std::span<float> values = layer.values(expert);
    state.add({"weights", {values.size()}, View(values), runtime::StatePolicy::kAverage});
    layer.adams[expert]->list(state);
    return state;
  }

  // Characters and those that follow, by piece.
  void cut(std::span<const std::uint16_t> characters) {
    const std::size_t length = at(options_.length);
    const std::size_t sequences = at(options_.batch / options_.pieces);
    inputs_.assign(at(options_.pieces), {});
    targets_.assign(at(options_.pieces), {});
    for (std::size_t i = 0; i < at(options_.batch); ++i) {
      const auto sequence = characters.subspan(i * (length + 1), length + 1);
      for (const std::uint16_t character : sequence) {
        if (character < options_.vocabulary) continue;
        throw Error(ErrorCode::kInvalid,
                    fmt::format("language model: character {} of a vocabulary of {}. Use the text "
                                "that the model was made for.",
                                character, options_.vocabulary));
      }
      auto& in = inputs_[i / sequences];
      auto& out = targets_[i / sequences];
      in.insert(in.end(), sequence.begin(), sequence.end() - 1);
      out.insert(out.end(), sequence.begin() + 1, sequence.end());
    }
  }

  void route(int index, std::vector<double>& balance) {
    Layer& layer = *layers_[at(index)];
    std::ranges::copy(gate_in(std::span<const float>(values_), index),
                      layer.gate->parameters().begin());
    layer.gated.clear();
    layer.x.clear();
    layer.routing = {};
    layer.routing.top_k = options_.top_k;
    layer.routing.count.assign(at(options_.experts), 0);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      const auto x = pieces_[i].attend(values_, at(index));
      layer.gated.push_back(layer.gate->forward({.x = x}));
      const Routing& gated = layer.gated.back().routing;
      Routing& all = layer.routing;
      all.tokens += gated.tokens;
      all.expert.insert(all.expert.end(), gated.expert.begin(), gated.expert.end());
      all.weight.insert(all.weight.end(), gated.weight.begin(), gated.weight.end());
      for (std::size_t e = 0; e < all.count.size(); ++e) all.count[e] += gated.count[e];
      balance[i] += layer.gate->losses(layer.gated.back().statistics).total();
      layer.x.insert(layer.x.end(), x.begin(), x.end());
    }
  }

  void mix(int index, std::vector<double>& balance) {
    Layer& layer = *layers_[at(index)];
    try {
      route(index, balance);
    } catch (...) {
      layer.mixture.refuse(std::current_exception(), tokens_here());  // the others must hear of it
    }
    layer.y.resize(layer.x.size());
    layer.mixture.forward({.x = layer.x, .routing = layer.routing}, layer.y);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      pieces_[i].add_mixture(piece_of(layer.y, i));
    }
  }

  std::size_t tokens_here() const {
    return pieces_.size() * at(options_.batch / options_.pieces) * at(options_.length);
  }

  template <class T>
  std::span<T> gate_in(std::span<T> dense, int index) const {
    return layout_.of(dense, at(index), DenseLayout::kGate);
  }

  std::span<float> piece_of(Flat& values, std::size_t i) const {
    const std::size_t count = values.size() / pieces_.size();
    return std::span(values).subspan(i * count, count);
  }

  void backward() {
    const float weight = 1 / static_cast<float>(options_.batch * options_.length);
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      std::ranges::fill(gradients_[i], 0.0f);
      pieces_[i].start_backward(values_, gradients_[i], weight);
    }
    Flat dy, dx, dweight;
    for (int index = options_.layers - 1; index >= 0; --index) {
      Layer& layer = *layers_[at(index)];
      dy.clear();
      for (const auto& piece : pieces_) {
        const auto part = piece.mixture_gradient();
        dy.insert(dy.end(), part.begin(), part.end());
      }
      dx.resize(dy.size());
      dweight.resize(layer.routing.expert.size());
      layer.mixture.backward(dy, {.dx = dx, .dweight = dweight});
      for (std::size_t i = 0; i < pieces_.size(); ++i) {
        const auto part = piece_of(dx, i);
        layer.gate->backward({.x = piece_of(layer.x, i)}, layer.gated[i],
                             {.dweight = piece_of(dweight, i),
                              .statistics = layer.gated[i].statistics,
                              .dloss = 1.0 / options_.pieces},
                             {gate_in(std::span<float>(gradients_[i]), index), part});
        pieces_[i].attend_backward(values_, gradients_[i], at(index), part);
      }
    }
    for (std::size_t i = 0; i < pieces_.size(); ++i) pieces_[i].embed_backward(gradients_[i]);
  }

  // The sums of all pieces on all workers, as one tree whatever their number.
  void update(double rate) {
    add_as_tree(gradients_);
    std::vector<Flat> all;
    if (comm_.size() > 1) {
      Flat gathered(layout_.count() * at(comm_.size()));
      comm_.all_gather(gradients_[0], gathered).wait();
      for (int rank = 0; rank < comm_.size(); ++rank) {
        const auto first =
            gathered.begin() + static_cast<std::ptrdiff_t>(at(rank) * layout_.count());
        all.emplace_back(first, first + static_cast<std::ptrdiff_t>(layout_.count()));
      }
      add_as_tree(all);
    }
    adam_->set_learning_rate(rate);
    adam_->update(View(values_), comm_.size() > 1 ? all[0] : gradients_[0]);
    for (const auto& layer : layers_) {
      for (std::size_t e = 0; e < layer->adams.size(); ++e) {
        layer->adams[e]->set_learning_rate(rate);
        layer->adams[e]->update(View(layer->values(e)), layer->gradients(e));
      }
    }
  }

  // Of all pieces, in their order.
  double total(const std::vector<double>& own) {
    std::vector<double> all(at(options_.pieces));
    comm_.all_gather(own, all).wait();
    double sum = 0;
    for (const double one : all) sum += one;
    return sum;
  }

  Communicator& comm_;
  DenseLayout layout_;
  Flat values_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<DensePiece<float>> pieces_;  // of this worker
  std::vector<Flat> gradients_;            // of each
  std::unique_ptr<runtime::Adam> adam_;
  std::vector<std::vector<std::uint16_t>> inputs_, targets_;  // of all pieces
};

LanguageModel::LanguageModel(Communicator& comm, const LanguageModelOptions& options)
    : impl_(std::make_unique<Impl>(comm, options)) {}
LanguageModel::~LanguageModel() = default;

const LanguageModelOptions& LanguageModel::options() const noexcept { return impl_->options_; }
LanguageModel::Report LanguageModel::step(std::span<const std::uint16_t> characters) {
  return impl_->step(characters);
}
LanguageModel::Report LanguageModel::evaluate(std::span<const std::uint16_t> characters) {
  return impl_->forward(characters);
}
const Routing& LanguageModel::routing(int layer) const { return impl_->layer(layer).routing; }
const Program& LanguageModel::program(int layer) const {
  return impl_->layer(layer).mixture.program();
}
const Timeline& LanguageModel::timeline(int layer) const {
  return impl_->layer(layer).mixture.timeline();
}
runtime::State LanguageModel::state() { return impl_->state(); }
std::int64_t LanguageModel::steps() const noexcept { return impl_->steps_; }

}  // namespace motley::moe
