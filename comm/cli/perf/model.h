// How well the cost model (comm/algorithm/cost.h) tells which family of schedules is faster, from
// times measured beside its prices.
#pragma once

#include <string>
#include <vector>

#include "comm/cli/perf/comparison.h"
#include "comm/cli/perf/plan.h"

namespace motley::perf {

// One family at one point.
struct Priced {
  std::string family;
  double measured = 0;  // seconds
  double price = 0;     // seconds, as the model says
};

struct Agreement {
  // Pairs of families whose measured times differ by more than the tolerance, and how many of them
  // the model puts in the same order.
  int pairs = 0;
  int right = 0;
  // Every such pair is in order.
  bool holds() const noexcept { return pairs == right; }
  // Time of the family that the model takes for the cheapest, over that of the fastest.
  double regret = 1;
};

// `tolerance`: 0.1 lets times within 10 % of each other count as equal, so that their order, which
// differs from run to run, does not matter. `families` is not empty.
Agreement agreement(const std::vector<Priced>& families, double tolerance);

// |price / measured - 1| of each.
std::vector<double> errors(const std::vector<Priced>& families);

struct ModelOptions {
  std::vector<int> ranks = {2, 4, 8};
  int rounds = 3;         // runs of each; medians count
  std::string self;       // path of motley-perf
  std::string transport;  // of the runs; empty: MOTLEY_TRANSPORT
  std::string topology;   // what prices go by, as Options::topology
  Duration run_limit = seconds(600);
};

// Measures every family of the plan's collectives and prints points, agreement and errors.
void model(const Plan& plan, const ModelOptions& options);

}  // namespace motley::perf
