// moe/gate_options.h: which gate, as one value. An option that the kind of gate does not read must
// keep its default: nothing is silently ignored.
//
//   GateOptions options{.width = 64, .experts = 8, .top_k = 2};
//   GateOptions same = parse_gate_options("width=64 experts=8 top_k=2");
#pragma once

#include <cstdint>
#include <string_view>

#include "moe/balance.h"

namespace motley::moe {

// l: logits [E] of a token; s: their scores. README.md has the equations and sources.
enum class GateKind : std::uint8_t {
  kTopK,             // "top_k": the k best
  kPrototypes,       // "prototypes": the best of each of k equal groups of experts; M6-T
  kBase,             // "base": in training as many tokens for every expert, by an auction; BASE
  kHash,             // "hash": by a hash of the token's vocabulary id; no parameters
  kSam,              // "sam": the best group by its sum of scores, then k best in it; SAM
  kDenseToSparse,    // "dense_to_sparse": all above a threshold, which ever fewer are; EvoMoE
  kTopologyLimited,  // "topology_limited": in training few tokens leave their host; FasterMoE
};

enum class GateLogits : std::uint8_t {
  kLinear,  // "linear": G x
  kCosine,  // "cosine": cosine of a projection of x and each expert's embedding, over a learned
            // temperature
};

enum class GateScore : std::uint8_t {
  kSoftmax,  // "softmax"
  kSigmoid,  // "sigmoid": each expert for itself; DeepSeek-V3
};

enum class GateNormalize : std::uint8_t {
  kNone,    // "none": a choice weighs its score
  kChosen,  // "chosen": over the sum of the chosen ones' scores
};

// Added to the logits in training.
enum class GateNoise : std::uint8_t {
  kNone,      // "none"
  kConstant,  // "constant": normal, deviation noise_scale / E
  kLearned,   // "learned": normal, deviation noise_scale * softplus(W x); Shazeer et al. 2017
};

// Added in training for the choice alone: the chosen are then drawn by their scores.
enum class GateGumbel : std::uint8_t {
  kNone,    // "none"
  kAll,     // "all": for all choices
  kSecond,  // "second": for all but the first; GShard's second expert in DeepSpeed
};

// What a group of experts is worth where few groups are open to a token.
enum class GroupScore : std::uint8_t {
  kBest,     // "best": its best score; DeepSeek-V2
  kBestTwo,  // "best_two": sum of its best two; DeepSeek-V3
  kSum,      // "sum": sum of all
};

enum class BiasMean : std::uint8_t {
  kFree,  // "free": as it comes
  kZero,  // "zero": made 0 after each step, as only differences matter
};

struct GateOptions {
  GateKind kind = GateKind::kTopK;
  int width = 0;    // numbers per token; 0 for kHash
  int experts = 0;  // E
  int top_k = 1;    // k, in [1, experts]; 1 for kBase
  GateLogits logits = GateLogits::kLinear;
  int projection = 0;                              // numbers of the projection; kCosine
  GateScore score = GateScore::kSoftmax;           // kTopK
  GateNormalize normalize = GateNormalize::kNone;  // not kBase, kHash
  double weight_scale = 1;                         // factor of all weights
  double jitter = 0;                               // in training x * U(1 - jitter, 1 + jitter)
  GateNoise noise = GateNoise::kNone;              // not kHash, kDenseToSparse
  double noise_scale = 1;                          // with noise
  GateGumbel gumbel = GateGumbel::kNone;           // kTopK
  int groups = 1;                                  // of E / groups experts each; kTopK, kSam
  int top_groups = 1;                              // open to a token, in [1, groups]; kTopK
  GroupScore group_score = GroupScore::kBest;      // kTopK
  double bias_rate = 0;                            // balance by a bias, not by a loss; kTopK
  BiasMean bias_mean = BiasMean::kFree;            // with bias_rate
  double temperature = 1;                          // kDenseToSparse: at step 0
  double temperature_decay = 0;                    // per step: temperature * exp(-decay * step)
  double temperature_floor = 1e-3;                 // no lower than this
  double threshold = 0;                            // scores below are cut, but for the best
  double far_share = 1;                            // of tokens that may leave; kTopologyLimited
  std::uint64_t hash_seed = 0;                     // kHash
  BalanceScales losses;                            // not kBase, kHash, but for z with kBase
};

// Throws kInvalid, naming the option, its value and its range, or the kind that does not read it.
void validate(const GateOptions& options);

// Reads name=value, any of the above, losses as loss.z=0.001 and so on; kind=top_k. Throws kInvalid
// on any other name or value, with those that exist, and validates.
GateOptions parse_gate_options(std::string_view text);

// The same for equal options, whatever the rank: all ranks of a layer must have the same gate.
std::uint64_t digest(const GateOptions& options) noexcept;

// The name of a kind as above.
std::string_view name(GateKind kind) noexcept;

}  // namespace motley::moe
