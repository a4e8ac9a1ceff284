// test/moe/routings.h: routings for tests of plans, and the plan of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "moe/plan.h"

namespace motley::moe {

using Scores = std::vector<std::vector<float>>;  // [tokens][experts]

// The example of Tutel's tests: six tokens, three experts.
inline const Scores kTutelScores = {{.6f, .3f, .1f},   {.5f, .2f, .3f}, {.7f, .2f, .1f},
                                    {.4f, .35f, .25f}, {.2f, .7f, .1f}, {.45f, .15f, .4f}};

// The k best of each token, with their scores as weights and the best as the priority.
inline Routing route_best(const Scores& scores, int k, int experts) {
  Routing routing{.tokens = scores.size(), .top_k = k};
  for (const std::vector<float>& row : scores) {
    std::vector<std::int32_t> order(row.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater(),
                             [&](std::int32_t e) { return row[static_cast<std::size_t>(e)]; });
    for (int j = 0; j < k; ++j) {
      routing.expert.push_back(order[static_cast<std::size_t>(j)]);
      routing.weight.push_back(row[static_cast<std::size_t>(routing.expert.back())]);
    }
    routing.priority.push_back(row[static_cast<std::size_t>(order[0])]);
  }
  count_choices(routing, experts);
  return routing;
}

// Some experts much more wanted than others, some choices none.
inline Routing random_routing(std::size_t tokens, int experts, int k, std::mt19937_64& random) {
  Routing routing{.tokens = tokens, .top_k = k};
  std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
      const std::size_t reach = std::max<std::size_t>(1, random() % (order.size() - i));
      std::swap(order[i], order[i + random() % reach]);
      const bool chosen = random() % 8 != 0;
      routing.expert.push_back(chosen ? order[i] : kNoExpert);
      routing.weight.push_back(chosen ? static_cast<float>(random() % 1000 + 1) / 1000 : 0);
    }
    routing.priority.push_back(static_cast<float>(random() % 16));
    routing.token.push_back(static_cast<std::int64_t>(random() >> 1));
  }
  count_choices(routing, experts);
  return routing;
}

}  // namespace motley::moe
