#include "comm/price.h"

#include <fmt/format.h>

#include "comm/algorithm/choose.h"
#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"
#include "comm/error.h"

namespace motley {
namespace {

const Algorithm& family_of(const PricedCall& call, const Topology& topology) {
  const auto& families = algorithms_of(call.kind);
  if (call.algorithm.empty() || call.algorithm == "auto") {
    const int index = choose({.kind = call.kind,
                              .bytes = call.bytes,
                              .root = call.root,
                              .segment_bytes = call.segment_bytes,
                              .whole = {}},
                             topology);
    return families[static_cast<std::size_t>(index)];
  }
  std::string names;
  for (const Algorithm& family : families) {
    if (call.algorithm == family.name) return family;
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  throw Error(ErrorCode::kInvalid, fmt::format("price: {} has no algorithm \"{}\". It has {}.",
                                               name(call.kind), call.algorithm, names));
}

}  // namespace

Duration price(const PricedCall& call, const Topology& topology) {
  return cost(family_of(call, topology),
              {.kind = call.kind,
               .bytes = call.bytes,
               .root = call.root,
               .segment_bytes = call.segment_bytes},
              topology);
}

}  // namespace motley
