#include "moe/routing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "comm/error.h"

namespace motley::moe {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe routing: " + what);
}

void require_size(const char* name, std::size_t size, std::size_t wanted) {
  if (size == wanted) return;
  refuse(fmt::format("{} holds {} numbers, not {}. Pass one for each.", name, size, wanted));
}

void require_choice(const Routing& routing, std::size_t t, std::size_t j) {
  const auto chosen = std::span(routing.expert).subspan(t * routing.top_k, j);
  const std::int32_t expert = routing.expert[t * routing.top_k + j];
  const float weight = routing.weight[t * routing.top_k + j];
  if (expert < kNoExpert || expert >= static_cast<std::int64_t>(routing.count.size())) {
    refuse(
        fmt::format("choice {} of token {} is expert {} of {}. Use [0, experts), or {} for none.",
                    j, t, expert, routing.count.size(), kNoExpert));
  }
  if (!std::isfinite(weight)) {
    refuse(fmt::format("the weight of choice {} of token {} is {}. Pass finite numbers.", j, t,
                       weight));
  }
  if (expert == kNoExpert && weight != 0) {
    refuse(fmt::format("choice {} of token {} is of no expert but weighs {}. Set it to 0.", j, t,
                       weight));
  }
  if (expert != kNoExpert && std::ranges::find(chosen, expert) != chosen.end()) {
    refuse(
        fmt::format("token {} chose expert {} twice. A token's choices are distinct.", t, expert));
  }
}

}  // namespace

void validate(const Routing& routing) {
  if (routing.top_k < 0) refuse(fmt::format("top_k is {}. It must be at least 0.", routing.top_k));
  const std::size_t choices = routing.tokens * static_cast<std::size_t>(routing.top_k);
  require_size("expert", routing.expert.size(), choices);
  require_size("weight", routing.weight.size(), choices);
  if (!routing.priority.empty()) require_size("priority", routing.priority.size(), routing.tokens);
  if (!routing.token.empty()) require_size("token", routing.token.size(), routing.tokens);
  for (std::size_t i = 0; i < choices; ++i) {
    require_choice(routing, i / static_cast<std::size_t>(routing.top_k),
                   i % static_cast<std::size_t>(routing.top_k));
  }
  for (std::size_t t = 0; t < routing.priority.size(); ++t) {
    if (std::isnan(routing.priority[t])) refuse(fmt::format("the priority of token {} is nan.", t));
  }
  Routing counted{.expert = routing.expert};
  count_choices(counted, static_cast<int>(routing.count.size()));
  for (std::size_t e = 0; e < routing.count.size(); ++e) {
    if (routing.count[e] == counted.count[e]) continue;
    refuse(fmt::format("the count of expert {} is {}, but {} choices are of it. Use count_choices.",
                       e, routing.count[e], counted.count[e]));
  }
}

void count_choices(Routing& routing, int experts) {
  routing.count.assign(static_cast<std::size_t>(experts), 0);
  for (const std::int32_t expert : routing.expert) {
    if (expert != kNoExpert) ++routing.count[static_cast<std::size_t>(expert)];
  }
}

}  // namespace motley::moe
