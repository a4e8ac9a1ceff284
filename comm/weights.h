// comm/weights.h: how much each member of a group counts in its average.
//
//   weights({.rule = WeightRule::kExponential, .lambda = 0.9}, {10, 10, 9})   // .345 .345 .310
//
// A version counts the steps that a model has in it; after an average each member's is the highest
// of the group. The staleness of a member is the distance to that. What the rules promise: weights
// sum to 1, equal versions get equal weights, nothing but differences of versions counts. All but
// the published rule also give a staler member no more than a fresher one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace motley {

enum class WeightRule : std::uint8_t {
  kUniform,      // 1/p: keeps the mean of all models
  kExponential,  // lambda^s
  kPolynomial,   // (1 + s)^-slope
  kHinge,        // 1 up to a staleness of `slack`, then 1 / (slope (s - slack) + 1)
  // As published with partial-reduce, for comparison: lambda^s for each *different* version, shared
  // by those that have it; what belongs to versions that nobody has goes to the freshest. So the
  // stale one of three outweighs two fresh ones, and a gap between versions makes the fresh heavy.
  kPublished,
  kPublishedOldest,  // a second reading of the same: it goes to the stalest instead
};

struct Weighting {
  WeightRule rule = WeightRule::kUniform;
  double lambda = 0.9;     // kExponential: in (0, 1]; published: in (0, 1)
  double slope = 0.5;      // kPolynomial, kHinge: at least 0
  std::int64_t slack = 2;  // kHinge: at least 0
  std::int64_t clip = 64;  // staler than this counts as this stale; at least 0
  // Keeps the mean of all models under any rule: member i takes min(w_i, w_j) of member j and keeps
  // the rest of its own, so that nobody gives more than it gets. Members do not end equal, the
  // stale are drawn to the others more slowly, and the traffic is the same. Not for integers.
  bool damped = false;
  friend bool operator==(const Weighting&, const Weighting&) = default;
};

// Throws kInvalid, with the number, if a parameter is outside its range.
void check(const Weighting& weighting);

// One weight a member, from their versions; at least one.
std::vector<double> weights(const Weighting& weighting, std::span<const std::int64_t> versions);

// The matrix of `damped`, row by row: what member i takes of member j. Symmetric; rows and columns
// sum to 1. Members that give nothing (`weights` 0) take the weighted mean.
std::vector<double> damped(std::span<const double> weights);

}  // namespace motley
