// How well the cost model (comm/algorithm/cost.h) tells which family of schedules is faster, from
// times measured beside its prices.
#pragma once

#include <string>
#include <vector>

#include "comm/cli/perf/comparison.h"
#include "comm/cli/perf/plan.h"

namespace motley::perf {

// One family at one point. Round i of all families of a point was measured in one go, so that what
// else the machine did meanwhile met them alike.
struct Priced {
  std::string family;
  std::vector<double> times;  // seconds, by round; not empty, as many as the others have
  double price = 0;           // seconds, as the model says

  double median() const;
};

// a is the faster one for sure: in three quarters of the rounds or more, b took longer by more than
// `tolerance` (0.1: 10 %). Where neither of two is faster for sure, they have no order.
bool surely_faster(const Priced& a, const Priced& b, double tolerance);

struct Agreement {
  // Pairs of families with an order, and how many of them are priced in that order.
  int pairs = 0;
  int right = 0;
  // Every such pair is in order.
  bool holds() const noexcept { return pairs == right; }
  // All families are in order by their medians, however little those differ.
  bool strictly = true;
  // Time of the family that the model takes for the cheapest, over that of the fastest.
  double regret = 1;
};

// `families` is not empty.
Agreement agreement(const std::vector<Priced>& families, double tolerance);

// |price / median - 1| of each.
std::vector<double> errors(const std::vector<Priced>& families);

struct ModelOptions {
  std::vector<int> ranks = {2, 4, 8};
  int rounds = 5;         // runs of each point
  std::string self;       // path of motley-perf
  std::string transport;  // of the runs; empty: MOTLEY_TRANSPORT
  std::string topology;   // what prices go by, as Options::topology
  Duration run_limit = seconds(600);
};

// Measures every family of the plan's collectives and prints points, agreement and errors.
void model(const Plan& plan, const ModelOptions& options);

}  // namespace motley::perf
