#include "moe/gate/route.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley::moe::gate {

GateForward unrouted(const GateOptions& options, const GateInput& input, std::size_t tokens) {
  if (!input.token.empty() && input.token.size() != tokens) {
    throw Error(ErrorCode::kInvalid, fmt::format("moe gate: {} token ids for {} tokens. Give one "
                                                 "for each, or none.",
                                                 input.token.size(), tokens));
  }
  const std::size_t choices = tokens * static_cast<std::size_t>(options.top_k);
  GateForward result{.statistics = BalanceStatistics(options.experts)};
  result.routing.tokens = tokens;
  result.routing.top_k = options.top_k;
  result.routing.expert.resize(choices, kNoExpert);
  result.routing.weight.resize(choices);
  result.routing.priority.resize(tokens);
  result.routing.token.assign(input.token.begin(), input.token.end());
  result.saved.weight.resize(choices);
  return result;
}

void finish(const GateOptions& options, GateForward& result) {
  Routing& routing = result.routing;
  BalanceStatistics& statistics = result.statistics;
  count_choices(routing, options.experts);
  std::ranges::copy(routing.count, statistics.choice_count().begin());
  statistics.tokens() = static_cast<double>(routing.tokens);
  const auto k = static_cast<std::size_t>(options.top_k);
  for (std::size_t i = 0; i < routing.expert.size(); ++i) {
    routing.weight[i] = static_cast<float>(result.saved.weight[i]);
    if (routing.expert[i] == kNoExpert) continue;
    const auto e = static_cast<std::size_t>(routing.expert[i]);
    statistics.importance()[e] += result.saved.weight[i];
    if (i % k == 0) statistics.first_count()[e] += 1;
  }
}

}  // namespace motley::moe::gate
