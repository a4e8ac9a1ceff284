// moe/reference/expert.h: one expert on one token: f(x) = W2 a(W1 x + b1) + b2, and its gradients.
#pragma once

#include "moe/layer_options.h"
#include "moe/reference/linear.h"

namespace motley::moe::reference {

double activate(Activation activation, double z);
double activation_slope(Activation activation, double z);

// One expert's parameters, or their gradients: w1 [h, d], b1 [h], w2 [d, h], b2 [d].
template <class Span>
struct ExpertSlot {
  // `slot` is w1, b1, w2, b2 one after the other.
  ExpertSlot(Span slot, std::size_t d, std::size_t h)
      : w1(slot.subspan(0, h * d)),
        b1(slot.subspan(h * d, h)),
        w2(slot.subspan(h * d + h, d * h)),
        b2(slot.subspan(2 * h * d + h, d)) {}
  Span w1, b1, w2, b2;
};

// How many numbers a slot holds.
constexpr std::size_t slot_count(std::size_t d, std::size_t h) { return 2 * d * h + h + d; }

// What forward computes for one token.
struct ExpertValues {
  Out hidden;  // [h], W1 x + b1
  Out output;  // [d], f(x)
};

// Overwrites `values`.
void expert_forward(const ExpertSlot<In>& weights, Activation activation, In x,
                    const ExpertValues& values);

// What backward needs of one token.
struct ExpertCall {
  In x;        // [d]
  In hidden;   // [h], as forward left it
  In doutput;  // [d]
};

// Where backward adds the gradients of <doutput, f(x)>.
struct ExpertGradients {
  ExpertSlot<Out> weights;
  Out dx;  // [d]
};

void expert_backward(const ExpertSlot<In>& weights, Activation activation, const ExpertCall& call,
                     const ExpertGradients& gradients);

}  // namespace motley::moe::reference
