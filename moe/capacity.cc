#include "moe/capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "comm/error.h"
#include "moe/digest.h"
#include "moe/text/settings.h"

namespace motley::moe {
namespace {

constexpr std::array<std::pair<std::string_view, DropOrder>, 4> kOrders = {
    {{"position", DropOrder::kPosition},
     {"priority", DropOrder::kPriority},
     {"seed", DropOrder::kSeed},
     {"weight", DropOrder::kWeight}}};
constexpr std::array<std::pair<std::string_view, Renormalize>, 2> kRenormalize = {
    {{"unreachable", Renormalize::kUnreachable}, {"all", Renormalize::kAll}}};

constexpr std::int64_t kMost = std::int64_t{1} << 40;  // of what a rule raises or multiplies to

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe capacity: " + what);
}

std::int64_t aligned(std::int64_t count, std::int64_t alignment) {
  return (count + alignment - 1) / alignment * alignment;
}

// Choices, as t * top_k + j, in the order in which they are served.
class ServingOrder {
 public:
  ServingOrder(const Routing& routing, const CapacityRule& rule, std::int64_t step)
      : routing_(routing), k_(static_cast<std::size_t>(routing.top_k)) {
    if (rule.order == DropOrder::kPriority && routing.priority.size() != routing.tokens) {
      refuse(
          fmt::format("order is priority, but the routing has priorities of {} of {} tokens. "
                      "Use a gate that gives them, or another order.",
                      routing.priority.size(), routing.tokens));
    }
    order_.reserve(routing.tokens * k_);
    if (rule.order == DropOrder::kWeight) {
      for (std::size_t j = 0; j < k_; ++j) add_choices(j);
      sort_from(0, [&](std::size_t i) { return -routing.weight[i]; });
      return;
    }
    for (std::size_t j = 0; j < k_; ++j) {
      const std::size_t first = order_.size();
      add_choices(j);
      if (rule.order == DropOrder::kPriority) {
        sort_from(first, [&](std::size_t i) { return -routing.priority[i / k_]; });
      } else if (rule.order == DropOrder::kSeed) {
        sort_from(first, [&](std::size_t i) { return lot(rule.seed, step, i / k_, j); });
      }
    }
  }

  const std::vector<std::size_t>& choices() const { return order_; }

 private:
  void add_choices(std::size_t j) {
    for (std::size_t t = 0; t < routing_.tokens; ++t) order_.push_back(t * k_ + j);
  }
  template <class Key>
  void sort_from(std::size_t first, Key key) {
    std::ranges::stable_sort(order_.begin() + static_cast<std::ptrdiff_t>(first), order_.end(), {},
                             key);
  }
  std::uint64_t lot(std::uint64_t seed, std::int64_t step, std::size_t t, std::size_t j) const {
    const auto token = routing_.token.empty() ? static_cast<std::int64_t>(t) : routing_.token[t];
    return Digest().add(seed).add(step).add(token).add(j).value();
  }

  const Routing& routing_;
  std::size_t k_;
  std::vector<std::size_t> order_;
};

}  // namespace

void validate(const CapacityRule& rule) {
  if (!std::isfinite(rule.factor)) {
    refuse(fmt::format("factor is {}. It must be finite; 0 drops nothing.", rule.factor));
  }
  if (rule.minimum < 0 || rule.minimum > kMost) {
    refuse(fmt::format("minimum is {}. It must be in [0, 2^40].", rule.minimum));
  }
  if (rule.alignment < 1 || rule.alignment > kMost) {
    refuse(fmt::format("alignment is {}. It must be in [1, 2^40].", rule.alignment));
  }
}

CapacityRule parse_capacity_rule(std::string_view text) {
  CapacityRule rule;
  Settings settings("moe capacity", text);
  settings.number("factor", rule.factor);
  settings.number("minimum", rule.minimum);
  settings.number("alignment", rule.alignment);
  settings.choice("order", Names<DropOrder>(kOrders), rule.order);
  settings.number("seed", rule.seed);
  settings.choice("renormalize", Names<Renormalize>(kRenormalize), rule.renormalize);
  settings.finish();
  validate(rule);
  return rule;
}

std::int64_t capacity(const CapacityRule& rule, const CapacityCase& at) {
  validate(rule);
  if (at.experts < 1) refuse(fmt::format("there are {} experts. Use at least 1.", at.experts));
  const auto experts = static_cast<std::size_t>(at.experts);
  const auto share = static_cast<double>((at.tokens + experts - 1) / experts);
  // No queue is longer than all tokens, so that any huge factor is as good as this.
  const auto most = static_cast<double>(kMost);
  const auto whole = static_cast<std::int64_t>(std::min(std::abs(rule.factor) * share, most));
  const std::int64_t limit = std::max(at.top_k * whole, rule.minimum);
  if (rule.factor == 0) return aligned(at.fullest, rule.alignment);
  return aligned(rule.factor > 0 ? limit : std::min(limit, at.fullest), rule.alignment);
}

std::vector<std::int64_t> queue_places(const Routing& routing, const CapacityRule& rule,
                                       std::int64_t step) {
  std::vector<std::int64_t> place(routing.expert.size(), -1);
  std::vector<std::int64_t> length(routing.count.size(), 0);
  const ServingOrder order(routing, rule, step);
  for (const std::size_t i : order.choices()) {
    if (routing.expert[i] == kNoExpert) continue;
    place[i] = length[static_cast<std::size_t>(routing.expert[i])]++;
  }
  return place;
}

}  // namespace motley::moe
