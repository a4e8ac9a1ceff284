// moe/layer_options.h: what a mixture-of-experts layer computes, as one value. Every version of the
// layer takes the same options, so that versions can be compared.
//
//   LayerOptions options{.width = 64, .hidden = 256, .experts = 8, .top_k = 2,
//                        .balance = BalanceLoss::kFirstChoice};
#pragma once

#include <cstdint>

namespace motley::moe {

// The function between an expert's two linear maps.
enum class Activation : std::uint8_t {
  kRelu,  // max(z, 0); derivative 0 at z = 0
  kGelu,  // z * Phi(z) with the exact normal distribution Phi; Hendrycks and Gimpel 2016
  kSilu,  // z / (1 + exp(-z)); Elfwing et al. 2017
};

// How a chosen expert's output is weighted, with p the softmax over all experts' logits.
enum class GateWeight : std::uint8_t {
  kSoftmax,     // p of the expert, as it is; Switch (Fedus et al. 2021)
  kNormalized,  // p over the sum of p of the chosen experts; GShard (Lepikhin et al. 2020), Shazeer
                // 2017
};

// A term of the objective that favours even use of the experts. n tokens, E experts; P_e is the
// mean of p_e over tokens. The shares f_e are counts, through which no gradient flows.
enum class BalanceLoss : std::uint8_t {
  kNone,         // 0
  kFirstChoice,  // E * sum_e f_e P_e, f_e = tokens with first choice e / n; Switch, equation 4
  kAllChoices,   // E * sum_e f_e P_e, f_e = choices of e by all tokens / (n * top_k); DeepSpeed's
                 // top-k
  kImportance,  // (deviation / mean)^2 over e of the sum of e's weights; Shazeer 2017, equations 6,
                // 7
};

struct LayerOptions {
  int width = 0;    // d: numbers per token, in and out
  int hidden = 0;   // h: numbers between an expert's two linear maps
  int experts = 0;  // E
  int top_k = 1;    // k: experts per token, in [1, experts]
  Activation activation = Activation::kGelu;
  GateWeight weight = GateWeight::kNormalized;
  BalanceLoss balance = BalanceLoss::kNone;
  double balance_scale = 0.01;  // factor of the balance loss in the objective, at least 0
};

// Throws kInvalid, naming the option, its value and its range.
void validate(const LayerOptions& options);

}  // namespace motley::moe
