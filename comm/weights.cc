#include "comm/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "comm/error.h"

namespace motley {
namespace {

// Before they are made to sum to 1.
double share(const Weighting& weighting, std::int64_t staleness) {
  const auto s = static_cast<double>(std::min(staleness, weighting.clip));
  switch (weighting.rule) {
    case WeightRule::kExponential:
      return std::pow(weighting.lambda, s);
    case WeightRule::kPolynomial:
      return std::pow(1 + s, -weighting.slope);
    case WeightRule::kHinge: {
      const double beyond = s - static_cast<double>(weighting.slack);
      return beyond <= 0 ? 1 : 1 / (weighting.slope * beyond + 1);
    }
    default:
      return 1;
  }
}

// Slots by staleness, each with the share of a geometric series; those that nobody fills go to one
// end. Those of equal staleness share their slot.
std::vector<double> published(const Weighting& weighting, std::span<const std::int64_t> stale) {
  std::map<std::int64_t, int> filled;  // members, by staleness
  for (const std::int64_t s : stale) ++filled[std::min(s, weighting.clip)];
  const double alpha = weighting.lambda;
  const auto slots = static_cast<double>(filled.rbegin()->first + 1);
  const double whole = 1 - std::pow(alpha, slots);
  double nobodys = 1;
  std::map<std::int64_t, double> slot;
  for (const auto& [s, members] : filled) {
    slot[s] = (1 - alpha) * std::pow(alpha, static_cast<double>(s)) / whole;
    nobodys -= slot[s];
  }
  const bool to_freshest = weighting.rule == WeightRule::kPublished;
  (to_freshest ? slot.begin()->second : slot.rbegin()->second) += nobodys;
  std::vector<double> result;
  for (const std::int64_t s : stale) {
    const std::int64_t clipped = std::min(s, weighting.clip);
    result.push_back(slot[clipped] / filled[clipped]);
  }
  return result;
}

void require(bool holds, const char* what, double is, const char* range) {
  if (holds) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("weights: {} is {}. Use a number {}.", what, is, range));
}

}  // namespace

void check(const Weighting& weighting) {
  const bool is_published = weighting.rule >= WeightRule::kPublished;
  require(weighting.rule <= WeightRule::kPublishedOldest, "the rule",
          static_cast<double>(weighting.rule), "that WeightRule names");
  require(weighting.lambda > 0 && weighting.lambda <= 1, "lambda", weighting.lambda,
          "above 0, up to 1");
  require(!is_published || weighting.lambda < 1, "lambda", weighting.lambda, "in (0, 1)");
  require(weighting.slope >= 0 && std::isfinite(weighting.slope), "slope", weighting.slope,
          "from 0 on");
  require(weighting.slack >= 0, "slack", static_cast<double>(weighting.slack), "from 0 on");
  require(weighting.clip >= 0, "clip", static_cast<double>(weighting.clip), "from 0 on");
}

std::vector<double> weights(const Weighting& weighting, std::span<const std::int64_t> versions) {
  const std::int64_t newest = *std::max_element(versions.begin(), versions.end());
  std::vector<std::int64_t> stale;
  for (const std::int64_t version : versions) {
    // Versions are what members say: a difference that does not fit is as stale as can be.
    const auto distance = static_cast<std::uint64_t>(newest) - static_cast<std::uint64_t>(version);
    stale.push_back(static_cast<std::int64_t>(std::min(distance, std::uint64_t{INT64_MAX})));
  }
  if (weighting.rule >= WeightRule::kPublished) return published(weighting, stale);
  std::vector<double> result;
  double sum = 0;
  for (const std::int64_t s : stale) sum += result.emplace_back(share(weighting, s));
  for (double& weight : result) weight /= sum;
  return result;
}

std::vector<double> damped(std::span<const double> weights) {
  const std::size_t p = weights.size();
  std::vector<double> matrix(p * p);
  for (std::size_t i = 0; i < p; ++i) {
    double others = 0;
    for (std::size_t j = 0; j < p; ++j) {
      if (i == j) continue;
      matrix[i * p + j] = weights[i] == 0 ? weights[j] : std::min(weights[i], weights[j]);
      others += matrix[i * p + j];
    }
    matrix[i * p + i] = weights[i] == 0 ? 0 : 1 - others;
  }
  return matrix;
}

}  // namespace motley
