#include "moe/gate/hash_gate.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "comm/error.h"
#include "moe/digest.h"
#include "moe/gate/route.h"

namespace motley::moe::gate {

GateForward HashGate::forward(const GateInput& input) const {
  const auto k = static_cast<std::size_t>(options_.top_k);
  const std::size_t tokens = input.vocabulary.size();
  GateForward result = unrouted(options_, input, tokens);
  std::vector<std::int32_t> expert(static_cast<std::size_t>(options_.experts));
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int32_t id = input.vocabulary[t];
    if (id < 0) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("moe gate: the vocabulary id of token {} is {}. Ids are at least 0.", t, id));
    }
    // The first k of a shuffle that the id alone decides.
    std::iota(expert.begin(), expert.end(), 0);
    for (std::size_t j = 0; j < k; ++j) {
      const std::uint64_t lot = Digest().add(options_.hash_seed).add(id).add(j).value();
      std::swap(expert[j], expert[j + lot % (expert.size() - j)]);
      result.routing.expert[t * k + j] = expert[j];
      result.saved.weight[t * k + j] = options_.weight_scale / options_.top_k;
    }
    result.routing.priority[t] = 1;
  }
  finish(options_, result);
  return result;
}

}  // namespace motley::moe::gate
