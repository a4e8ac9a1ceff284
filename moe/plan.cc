#include "moe/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "comm/error.h"
#include "moe/digest.h"

namespace motley::moe {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe plan: " + what);
}

std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

void require_matching(const PlanInput& input) {
  const Placement& placement = input.placement;
  validate(input.routing);
  validate(input.capacity);
  if (input.routing.count.size() != index(placement.experts())) {
    refuse(
        fmt::format("the routing is over {} experts, the placement of epoch {} has {}. Use those "
                    "of one layer.",
                    input.routing.count.size(), placement.epoch(), placement.experts()));
  }
  if (input.rank < 0 || input.rank >= placement.ranks()) {
    refuse(fmt::format("rank {} is not in the placement of epoch {} on {} ranks.", input.rank,
                       placement.epoch(), placement.ranks()));
  }
  if (!placement.alive(input.rank)) {
    refuse(fmt::format("rank {} is dead in the placement of epoch {}. A rank that lives plans.",
                       input.rank, placement.epoch()));
  }
  if (input.most_tokens != 0 && input.most_tokens < input.routing.tokens) {
    refuse(fmt::format("rank {} has {} tokens, more than most_tokens {}. Raise it on all ranks.",
                       input.rank, input.routing.tokens, input.most_tokens));
  }
}

std::vector<int> live_replicas(const Placement& placement, std::int32_t expert) {
  std::vector<int> live;
  for (int i = 0; i < placement.replicas(expert); ++i) {
    if (placement.live(expert, i)) live.push_back(i);
  }
  return live;
}

// Decides plan.fate of every choice, and with it the weights.
void decide_fates(const PlanInput& input, const std::vector<std::vector<int>>& live, Plan& plan) {
  const Routing& routing = input.routing;
  const std::int64_t fullest = routing.count.empty() ? 0 : *std::ranges::max_element(routing.count);
  if (!routing.count.empty()) {
    plan.capacity = capacity(input.capacity, {.tokens = std::max(input.most_tokens, routing.tokens),
                                              .experts = input.placement.experts(),
                                              .top_k = routing.top_k,
                                              .fullest = fullest});
  }
  const std::vector<std::int64_t> place = queue_places(routing, input.capacity, input.step);
  plan.fate.resize(routing.expert.size());
  for (std::size_t i = 0; i < plan.fate.size(); ++i) {
    const std::int32_t expert = routing.expert[i];
    if (expert == kNoExpert) {
      plan.fate[i] = Fate::kNone;
    } else if (live[index(expert)].empty()) {
      plan.fate[i] = Fate::kUnreachable;
      ++plan.unreachable;
    } else if (place[i] >= plan.capacity) {
      plan.fate[i] = Fate::kOverCapacity;
      ++plan.over_capacity;
    } else if (static_cast<int>(live[index(expert)].size()) < input.placement.replicas(expert)) {
      ++plan.rerouted;
    }
  }
}

// A token's weights, and how much of them is its lost choices'.
struct TokenWeight {
  float all = 0;
  float kept = 0;  // 0: nobody is left to take the rest
};

bool leaves_weight(Fate fate, Renormalize rule) {
  return fate == Fate::kUnreachable || (rule == Renormalize::kAll && fate == Fate::kOverCapacity);
}

TokenWeight token_weight(const Plan& plan, const Routing& routing, std::size_t token) {
  TokenWeight sum;
  const auto k = index(plan.top_k);
  for (std::size_t i = token * k; i < (token + 1) * k; ++i) {
    sum.all += routing.weight[i];
    if (!leaves_weight(plan.fate[i], plan.renormalize)) sum.kept += routing.weight[i];
  }
  return sum;
}

bool renormalized(const Plan& plan, std::size_t token) {
  const auto k = index(plan.top_k);
  return std::ranges::any_of(std::span(plan.fate).subspan(token * k, k),
                             [&](Fate fate) { return leaves_weight(fate, plan.renormalize); });
}

void set_weights(const Routing& routing, Plan& plan) {
  const auto k = index(plan.top_k);
  plan.weight.assign(routing.weight.size(), 0.0f);
  for (std::size_t t = 0; t < plan.tokens; ++t) {
    float factor = 1;
    if (renormalized(plan, t)) {
      const TokenWeight sum = token_weight(plan, routing, t);
      if (sum.kept > 0) factor = sum.all / sum.kept;
    }
    for (std::size_t i = t * k; i < (t + 1) * k; ++i) {
      if (plan.fate[i] == Fate::kServed) plan.weight[i] = routing.weight[i] * factor;
    }
  }
}

// Served choices by expert, in order of position.
std::vector<std::vector<std::size_t>> served_choices(const Routing& routing, const Plan& plan) {
  std::vector<std::vector<std::size_t>> served(routing.count.size());
  for (std::size_t i = 0; i < plan.fate.size(); ++i) {
    if (plan.fate[i] == Fate::kServed) served[index(routing.expert[i])].push_back(i);
  }
  return served;
}

void choose_replicas(const PlanInput& input, const std::vector<std::vector<int>>& live,
                     Plan& plan) {
  const auto shards = index(plan.shards);
  plan.physical.assign(plan.fate.size() * shards, -1);
  plan.send_count.assign(input.placement.physical().size(), 0);
  const std::vector<std::vector<std::size_t>> served = served_choices(input.routing, plan);
  for (std::size_t e = 0; e < served.size(); ++e) {
    if (served[e].empty()) continue;
    const auto expert = static_cast<std::int32_t>(e);
    std::vector<int> replica(served[e].size(), -1);
    input.chooser.choose({input.placement, expert, live[e], input.rank}, replica);
    for (std::size_t i = 0; i < replica.size(); ++i) {
      if (std::ranges::find(live[e], replica[i]) == live[e].end()) {
        refuse(
            fmt::format("the chooser gave a choice of expert {} to replica {}, which is none of "
                        "the {} live ones. Mend the chooser.",
                        e, replica[i], live[e].size()));
      }
      const auto parts = input.placement.replica(expert, replica[i]);
      std::ranges::copy(parts,
                        plan.physical.begin() + static_cast<std::ptrdiff_t>(served[e][i] * shards));
      for (const std::int32_t part : parts) ++plan.send_count[index(part)];
    }
  }
}

void number_rows(Plan& plan) {
  plan.send_first.assign(plan.send_count.size() + 1, 0);
  std::inclusive_scan(plan.send_count.begin(), plan.send_count.end(), plan.send_first.begin() + 1);
  plan.choice.resize(static_cast<std::size_t>(plan.send_first.back()));
  plan.row.assign(plan.physical.size(), -1);
  std::vector<std::int64_t> next = plan.send_first;
  for (std::size_t i = 0; i < plan.physical.size(); ++i) {
    if (plan.physical[i] < 0) continue;
    plan.row[i] = next[index(plan.physical[i])]++;
    plan.choice[static_cast<std::size_t>(plan.row[i])] =
        static_cast<std::int64_t>(i / index(plan.shards));
  }
}

void sign(const PlanInput& input, Plan& plan) {
  Digest digest;
  digest.add(plan.epoch).add(plan.rank).add(plan.tokens).add(plan.top_k).add(plan.shards);
  digest.add(plan.capacity).add(input.routing.expert).add(plan.physical).add(plan.row);
  for (const float weight : plan.weight) digest.add(std::bit_cast<std::uint32_t>(weight));
  plan.digest = digest.value();

  const CapacityRule& rule = input.capacity;
  plan.agreement = Digest()
                       .add(input.placement.digest())
                       .add(input.chooser.digest())
                       .add(std::bit_cast<std::uint64_t>(rule.factor))
                       .add(rule.minimum)
                       .add(rule.alignment)
                       .add(static_cast<int>(rule.order))
                       .add(rule.seed)
                       .add(static_cast<int>(rule.renormalize))
                       .add(plan.top_k)
                       .add(input.most_tokens)
                       .add(input.step)
                       .value();
}

}  // namespace

Plan make_plan(const PlanInput& input) {
  require_matching(input);
  Plan plan{.epoch = input.placement.epoch(),
            .rank = input.rank,
            .tokens = input.routing.tokens,
            .top_k = input.routing.top_k,
            .shards = input.placement.most_shards(),
            .renormalize = input.capacity.renormalize};
  std::vector<std::vector<int>> live;
  for (std::int32_t e = 0; e < input.placement.experts(); ++e) {
    live.push_back(live_replicas(input.placement, e));
  }
  decide_fates(input, live, plan);
  set_weights(input.routing, plan);
  choose_replicas(input, live, plan);
  number_rows(plan);
  sign(input, plan);
  return plan;
}

std::vector<float> weight_gradient(const Plan& plan, const Routing& routing,
                                   std::span<const float> dweight) {
  if (dweight.size() != plan.weight.size() || routing.weight.size() != plan.weight.size()) {
    refuse(
        fmt::format("dweight holds {} numbers and the routing {}, but the plan {} choices. Pass "
                    "one for each.",
                    dweight.size(), routing.weight.size(), plan.weight.size()));
  }
  const auto k = index(plan.top_k);
  std::vector<float> result(dweight.size(), 0.0f);
  for (std::size_t t = 0; t < plan.tokens; ++t) {
    // plan.weight = w * all / kept over served choices; all and kept are sums of w.
    TokenWeight sum{.all = 1, .kept = 1};
    float shared = 0;
    const bool shares = renormalized(plan, t);
    if (shares) sum = token_weight(plan, routing, t);
    const bool scaled = shares && sum.kept > 0;
    const float factor = scaled ? sum.all / sum.kept : 1.0f;
    for (std::size_t i = t * k; scaled && i < (t + 1) * k; ++i) {
      if (plan.fate[i] == Fate::kServed) shared += dweight[i] * routing.weight[i];
    }
    for (std::size_t i = t * k; i < (t + 1) * k; ++i) {
      if (plan.fate[i] == Fate::kNone) continue;
      if (plan.fate[i] == Fate::kServed) result[i] = dweight[i] * factor;
      if (!scaled) continue;
      result[i] += shared / sum.kept;
      if (!leaves_weight(plan.fate[i], plan.renormalize)) {
        result[i] -= shared * sum.all / (sum.kept * sum.kept);
      }
    }
  }
  return result;
}

ReceivePlan make_receive_plan(std::span<const std::int64_t> counts, int ranks) {
  if (ranks < 1 || counts.size() % index(ranks) != 0) {
    refuse(fmt::format("{} counts are not the same number from each of {} ranks.", counts.size(),
                       ranks));
  }
  const std::size_t mine = counts.size() / index(ranks);
  ReceivePlan plan{.segment = std::vector<std::int64_t>(mine + 1, 0),
                   .first = std::vector<std::int64_t>(counts.size())};
  for (std::size_t e = 0; e < mine; ++e) {
    for (std::size_t r = 0; r < index(ranks); ++r) {
      const std::int64_t count = counts[r * mine + e];
      if (count < 0) refuse(fmt::format("rank {} sends {} rows. Counts are at least 0.", r, count));
      plan.first[r * mine + e] = plan.rows;
      plan.rows += count;
    }
    plan.segment[e + 1] = plan.rows;
  }
  return plan;
}

}  // namespace motley::moe
