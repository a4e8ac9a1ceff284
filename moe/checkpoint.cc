#include "moe/checkpoint.h"

#include <fmt/format.h>

#include <vector>

#include "comm/error.h"

namespace motley::moe {
bool alike(const runtime::State& a, const runtime::State& b) {
  if (a.items().size() != b.items().size()) return false;
  for (std::size_t i = 0; i < a.items().size(); ++i) {
    const runtime::StateItem &x = a.items()[i], &y = b.items()[i];
    if (x.name != y.name || x.shape != y.shape || x.data.dtype != y.data.dtype) return false;
  }
  return true;
}

void list_experts(runtime::State& state, const ExpertListing& listing,
                  std::span<const ExpertState> here) {
  std::vector<const runtime::State*> items(static_cast<std::size_t>(listing.experts));
  for (const ExpertState& one : here) {
    const bool known = one.expert >= 0 && one.expert < listing.experts;
    if (!known || items[static_cast<std::size_t>(one.expert)] != nullptr) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("moe checkpoint: expert {} of {} is {}. List each that is here once.",
                              one.expert, listing.experts, known ? "here twice" : "not there"));
    }
    if (!alike(one.items, listing.example)) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("moe checkpoint: the {} items of expert {} are not the {} of the "
                      "example. List the same names, shapes and types.",
                      one.items.items().size(), one.expert, listing.example.items().size()));
    }
    items[static_cast<std::size_t>(one.expert)] = &one.items;
  }
  for (std::size_t expert = 0; expert < items.size(); ++expert) {
    for (std::size_t i = 0; i < listing.example.items().size(); ++i) {
      const runtime::StateItem& example = listing.example.items()[i];
      const View data = items[expert] != nullptr ? items[expert]->items()[i].data
                                                 : View(nullptr, 0, example.data.dtype);
      state.add({fmt::format("{}expert.{}.{}", listing.prefix, expert, example.name), example.shape,
                 data, runtime::StatePolicy::kOwned});
    }
  }
}

}  // namespace motley::moe
