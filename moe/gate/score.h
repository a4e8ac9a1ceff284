// moe/gate/score.h: scores of logits, weights of the chosen, and their gradients, one token at a
// time.
#pragma once

#include "moe/gate/rows.h"
#include "moe/gate_options.h"

namespace motley::moe::gate {

// Overwrites `score`: softmax(logits / temperature), for kPrototypes within each of the k groups,
// or the sigmoid of each logit with GateScore::kSigmoid and kBase.
void score_of(const GateOptions& options, In logits, double temperature, Out score);

// Turns dscore into the gradient by the logits.
void score_backward(const GateOptions& options, In score, double temperature, Out dscore);

// The temperature at a step; 1 for all but kDenseToSparse.
double temperature_at(const GateOptions& options, std::int64_t step);

// Overwrites `weight` [k] for the chosen experts; 0 for kNoExpert.
void weigh(const GateOptions& options, In score, std::span<const std::int32_t> chosen, Out weight);

// A token's choices with their weights, and the gradient by those.
struct Weighed {
  std::span<const std::int32_t> chosen;
  In weight;
  In dweight;
};

// Adds to dscore.
void weigh_backward(const GateOptions& options, In score, const Weighed& weighed, Out dscore);

// The sum of all scores of a token, that balance losses divide by: q_e = s_e / sum.
double score_sum(const GateOptions& options, In score);

// Adds the gradient from dq [E] to dscore.
void probability_backward(const GateOptions& options, In score, In dq, Out dscore);

}  // namespace motley::moe::gate
