#include "moe/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/error.h"
#include "comm/json.h"
#include "comm/price.h"

namespace motley::moe {
namespace {

constexpr int kCount = 0, kBytes = 1, kCurve = 2;         // of Terms
constexpr double kTowardsDefault = 1e-4, kSmooth = 1e-2;  // weights, beside 1 for an observation
constexpr double kLeastError = 0.02;                      // smaller ones count as much
constexpr int kRounds = 12;                               // of weighting anew
constexpr int kSweeps = 400;

bool multiplies(OpKind kind) {
  return kind == OpKind::kExperts || kind == OpKind::kExpertsGradient ||
         kind == OpKind::kParametersGradient;
}
bool exchanges(OpKind kind) { return kind == OpKind::kDispatch || kind == OpKind::kCombine; }

// Adds `work` of `size` to the two knots of a curve that it lies between.
template <class Terms>
void add_to_curve(Terms& terms, int knots, double work, double size) {
  const double at = std::clamp(std::log2(std::max(size, 1.0)) / 2, 0.0, knots - 1.0);
  const int knot = std::min(static_cast<int>(at), knots - 2);
  const double share = at - knot;
  terms[static_cast<std::size_t>(kCurve + knot)] += work * (1 - share);
  terms[static_cast<std::size_t>(kCurve + knot + 1)] += work * share;
}

std::int64_t longest_way(const Op& op) {
  return std::max(std::reduce(op.sent.begin(), op.sent.end()),
                  std::reduce(op.received.begin(), op.received.end()));
}

double median_of(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  return values[static_cast<std::size_t>(std::lround(at))];
}

}  // namespace

CostModel::CostModel(Topology topology) : topology_(std::move(topology)) {
  for (int kind = 0; kind < kOpKinds; ++kind) {
    Curve& curve = curves_[static_cast<std::size_t>(kind)];
    const bool products = multiplies(static_cast<OpKind>(kind));
    const bool messages = exchanges(static_cast<OpKind>(kind));
    curve.scale.fill(products ? 5e-11 : messages ? 1.0 : 2e-10);
    curve.scale[kCount] = messages ? 2e-5 : 2e-6;
    curve.scale[kBytes] = 1e-10;
    curve.height.fill(1);
  }
}

double CostModel::priced(const std::string& algorithm, std::int64_t bytes) const {
  const auto at = [&](int power) {
    const auto [it, fresh] = prices_.try_emplace({algorithm, power}, 0.0);
    if (fresh) {
      it->second = to_seconds(price(
          {.kind = CallKind::kAllToAllV, .bytes = std::size_t{1} << power, .algorithm = algorithm},
          topology_));
    }
    return it->second;
  };
  const double real = static_cast<double>(std::max<std::int64_t>(bytes, 1));
  const int power = static_cast<int>(std::log2(real));
  const double low = std::exp2(power), share = (real - low) / low;
  return at(power) * (1 - share) + at(power + 1) * share;
}

CostModel::Terms CostModel::terms_of(const Op& op, std::int64_t longest) const {
  Terms terms{};
  terms[kCount] = 1;
  if (multiplies(op.kind)) {
    for (const GemmShape& gemm : op.gemms) {
      if (gemm.rows == 0) continue;
      terms[kCount] += 1;
      const auto rows = static_cast<double>(gemm.rows), columns = static_cast<double>(gemm.columns),
                 inner = static_cast<double>(gemm.inner);
      add_to_curve(terms, kKnots, 2 * rows * columns * inner, rows);
    }
    terms[kBytes] = static_cast<double>(op.bytes);
  } else if (exchanges(op.kind)) {
    const double ranks = topology_.ranks();
    const double all = static_cast<double>(longest) * (ranks > 1 ? ranks / (ranks - 1) : 1);
    add_to_curve(terms, kKnots, priced(op.algorithm, static_cast<std::int64_t>(all)), all);
    terms[kBytes] = static_cast<double>(longest);
  } else {
    const auto bytes = static_cast<double>(op.bytes);
    add_to_curve(terms, kKnots, bytes, bytes);
  }
  return terms;
}

double CostModel::evaluate(const Curve& curve, const Terms& terms) {
  double sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += terms[i] * curve.scale[i] * curve.height[i];
  return sum;
}

Duration CostModel::time(const Op& op) const {
  return seconds(
      evaluate(curves_[static_cast<std::size_t>(op.kind)], terms_of(op, longest_way(op))));
}

Duration CostModel::time(std::span<const Op* const> ops) const {
  std::int64_t longest = 0;
  Duration slowest{};
  for (const Op* op : ops) longest = std::max(longest, longest_way(*op));
  for (const Op* op : ops) {
    const Curve& curve = curves_[static_cast<std::size_t>(op->kind)];
    slowest = std::max(slowest, seconds(evaluate(curve, terms_of(*op, longest))));
  }
  return slowest;
}

void CostModel::observe(const Op& op, Duration measured) {
  if (measured <= Duration{}) return;  // the clock has not moved on: nothing to learn from
  Curve& curve = curves_[static_cast<std::size_t>(op.kind)];
  const Observation one{terms_of(op, longest_way(op)), to_seconds(measured)};
  if (curve.observed < kRemembered) {
    curve.recent.push_back(one);
  } else {
    curve.recent[static_cast<std::size_t>(curve.observed % kRemembered)] = one;
  }
  ++curve.observed;
}

void CostModel::fit() {
  for (Curve& curve : curves_) {
    if (curve.observed == 0) continue;
    for (int round = 0; round < kRounds; ++round) fit(curve);
  }
}

// Least squares of relative errors, each weighted by what it was before, so that they count by
// their size and not by its square, and one that is too low as much as one that is too high.
void CostModel::fit(Curve& curve) {
  std::array<Terms, kTerms> products{};
  Terms sums{};
  for (const Observation& one : curve.recent) {
    const double told = std::clamp(evaluate(curve, one.terms) / one.seconds, 0.05, 20.0);
    const double weight = 1 / (told * std::max(std::abs(std::log(told)), kLeastError));
    Terms relative = one.terms;
    for (std::size_t i = 0; i < kTerms; ++i) relative[i] *= curve.scale[i] / one.seconds;
    for (std::size_t i = 0; i < kTerms; ++i) {
      for (std::size_t j = 0; j < kTerms; ++j) products[i][j] += weight * relative[i] * relative[j];
      sums[i] += weight * relative[i];
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    products[i][i] += kTowardsDefault;
    sums[i] += kTowardsDefault;
    if (i < kCurve || i + 1 == kTerms) continue;
    products[i][i] += kSmooth;
    products[i + 1][i + 1] += kSmooth;
    products[i][i + 1] -= kSmooth;
    products[i + 1][i] -= kSmooth;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t i = 0; i < kTerms; ++i) {
      double rest = sums[i];
      for (std::size_t j = 0; j < kTerms; ++j)
        rest -= j == i ? 0 : products[i][j] * curve.height[j];
      curve.height[i] = std::max(0.0, rest / products[i][i]);
    }
  }
}

std::int64_t CostModel::observed(OpKind kind) const noexcept {
  return curves_[static_cast<std::size_t>(kind)].observed;
}

std::string CostModel::to_text() const {
  nlohmann::json kinds = nlohmann::json::object();
  for (int kind = 0; kind < kOpKinds; ++kind) {
    const Curve& curve = curves_[static_cast<std::size_t>(kind)];
    if (curve.observed == 0) continue;
    nlohmann::json recent = nlohmann::json::array();
    for (const Observation& one : curve.recent) recent.push_back({one.seconds, one.terms});
    kinds[name(static_cast<OpKind>(kind))] = {
        {"observed", curve.observed}, {"height", curve.height}, {"recent", recent}};
  }
  return json_text({{"motley_moe_costs", 1}, {"kinds", kinds}}, 1) + "\n";
}

CostModel CostModel::parse(const std::string& text, const std::string& file, Topology topology) {
  CostModel model(std::move(topology));
  try {
    const nlohmann::json all = parse_json(text);
    if (all.at("motley_moe_costs") != 1) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("moe costs: {} is of version {}, but this build reads 1. Measure anew.", file,
                      json_text(all.at("motley_moe_costs"))));
    }
    for (int kind = 0; kind < kOpKinds; ++kind) {
      const auto it = all.at("kinds").find(name(static_cast<OpKind>(kind)));
      if (it == all.at("kinds").end()) continue;
      Curve& curve = model.curves_[static_cast<std::size_t>(kind)];
      curve.observed = it->at("observed");
      curve.height = it->at("height").get<Terms>();
      for (const double height : curve.height) {
        if (std::isfinite(height) && height >= 0) continue;
        throw Error(
            ErrorCode::kInvalid,
            fmt::format("moe costs: {}: {} has a height of {}, which must be finite and not "
                        "below 0. Measure anew.",
                        file, name(static_cast<OpKind>(kind)), height));
      }
      for (const nlohmann::json& one : it->at("recent"))
        curve.recent.push_back({one.at(1).get<Terms>(), one.at(0).get<double>()});
      if (std::ssize(curve.recent) == std::min(curve.observed, kRemembered)) continue;
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("moe costs: {}: {} has {} of {} observations. Measure anew.", file,
                      name(static_cast<OpKind>(kind)), curve.recent.size(), curve.observed));
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("moe costs: {}: {}. Pass what to_text() wrote.", file, error.what()));
  }
  return model;
}

void Accuracy::add(OpKind kind, Duration predicted, Duration measured) {
  if (measured <= Duration{}) return;
  errors_[kind].push_back(std::abs(to_seconds(predicted) / to_seconds(measured) - 1));
}

double Accuracy::median() const { return percentile(0.5); }

double Accuracy::percentile(double share) const {
  std::vector<double> all;
  for (const auto& [kind, errors] : errors_) all.insert(all.end(), errors.begin(), errors.end());
  return median_of(std::move(all), share);
}

std::string Accuracy::to_text() const {
  std::string text;
  std::size_t count = 0;
  const auto line = [&](const char* what, std::size_t number, double median, double most) {
    text +=
        fmt::format("{:<18} {:>6} operations: median error {:5.1f} %, 95 of 100 within {:5.1f} %\n",
                    what, number, 100 * median, 100 * most);
  };
  for (const auto& [kind, errors] : errors_) {
    line(name(kind), errors.size(), median_of(errors, 0.5), median_of(errors, 0.95));
    count += errors.size();
  }
  line("all", count, median(), percentile(0.95));
  return text;
}

}  // namespace motley::moe
