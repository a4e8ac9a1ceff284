// test/moe/gates.h: gates with random parameters, and inputs whose numbers may be moved by 2^-12
// without rounding.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "moe/gate.h"

namespace motley::moe {

// Multiples of 2^-8 in [-1, 1).
inline std::vector<float> coarse_numbers(std::size_t count, std::mt19937_64& random) {
  std::vector<float> numbers(count);
  for (float& number : numbers) number = static_cast<float>(random() >> 55) / 256 - 1;
  return numbers;
}

// A gate read from text, with coarse parameters.
inline std::unique_ptr<Gate> random_gate(const std::string& text, std::mt19937_64& random) {
  std::unique_ptr<Gate> gate = make_gate(parse_gate_options(text));
  const std::vector<float> numbers = coarse_numbers(gate->parameters().size(), random);
  std::ranges::copy(numbers, gate->parameters().begin());
  return gate;
}

// What a GateInput refers to.
struct GateBatch {
  GateBatch(const Gate& gate, std::size_t tokens, std::mt19937_64& random)
      : x(coarse_numbers(tokens * static_cast<std::size_t>(gate.options().width), random)),
        near(static_cast<std::size_t>(gate.options().experts)) {
    for (std::size_t t = 0; t < tokens; ++t) {
      token.push_back(static_cast<std::int64_t>(random() >> 1));
      vocabulary.push_back(static_cast<std::int32_t>(random() % 1000));
    }
    for (std::size_t e = 0; e < near.size(); ++e) near[e] = e < (near.size() + 1) / 2;
  }

  // All of it, or `count` tokens from `first` on.
  GateInput input(GateMode mode = GateMode::kTrain) const { return part(0, token.size(), mode); }
  GateInput part(std::size_t first, std::size_t count, GateMode mode = GateMode::kTrain) const {
    const std::size_t width = token.empty() ? 0 : x.size() / token.size();
    return {.x = std::span(x).subspan(first * width, count * width),
            .seed = 3,
            .step = 7,
            .mode = mode,
            .token = std::span(token).subspan(first, count),
            .vocabulary = std::span(vocabulary).subspan(first, count),
            .near = near};
  }

  std::vector<float> x;
  std::vector<std::int64_t> token;
  std::vector<std::int32_t> vocabulary;
  std::vector<std::uint8_t> near;
};

// One of each kind and of each option that changes what is chosen.
inline const std::vector<std::string> kGates = {
    "width=5 experts=6 top_k=2",
    "width=5 experts=6 top_k=1 normalize=chosen jitter=0.25",
    "width=5 experts=6 top_k=6 normalize=chosen weight_scale=2.5",
    "width=5 experts=6 top_k=2 score=sigmoid normalize=chosen loss.first_choice=0.5",
    "width=5 experts=6 top_k=2 score=sigmoid bias_rate=0.001 weight_scale=0.5 loss.all_choices=1",
    "width=5 experts=6 top_k=2 loss.first_choice=1 loss.z=0.5",
    "width=5 experts=6 top_k=3 normalize=chosen loss.all_choices=1 loss.importance=0.5",
    "width=5 experts=6 top_k=2 noise=constant noise_scale=3 loss.load=1 loss.importance=1",
    "width=5 experts=6 top_k=2 noise=learned noise_scale=0.5 jitter=0.125 loss.load=1 loss.z=1",
    "width=5 experts=6 top_k=2 normalize=chosen gumbel=second",
    "width=5 experts=6 top_k=2 gumbel=all loss.first_choice=1",
    "width=5 experts=6 top_k=2 groups=3 top_groups=2 group_score=best_two loss.all_choices=1",
    "width=5 experts=6 top_k=2 logits=cosine projection=4 loss.z=1 loss.first_choice=1",
    "width=5 experts=6 top_k=2 logits=cosine projection=3 noise=learned loss.load=1",
    "kind=prototypes width=5 experts=6 top_k=3 loss.all_choices=1",
    "kind=prototypes width=5 experts=6 top_k=2 normalize=chosen noise=constant loss.first_choice=1",
    "kind=base width=5 experts=6 loss.z=1",
    "kind=sam width=5 experts=6 top_k=2 groups=2 normalize=chosen loss.alignment=1 loss.z=0.5",
    "kind=dense_to_sparse width=5 experts=6 top_k=6 temperature=2 temperature_decay=0.1 "
    "threshold=0.125 loss.all_choices=1",
    "kind=dense_to_sparse width=5 experts=6 top_k=4 threshold=0.25 normalize=chosen "
    "loss.importance=1",
    "kind=topology_limited width=5 experts=6 top_k=2 far_share=0.25 loss.first_choice=1",
    "kind=hash experts=6 top_k=2",
};

}  // namespace motley::moe
