#include "comm/algorithm/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"

namespace motley {
namespace {

int cheapest(const std::vector<Price>& prices) {
  const auto by_time = [](const Price& a, const Price& b) { return a.time < b.time; };
  return static_cast<int>(std::min_element(prices.begin(), prices.end(), by_time) - prices.begin());
}

}  // namespace

int choose(const Choice& call, const Topology& topology) {
  return algorithms_of(call.kind).size() == 1 ? 0 : cheapest(prices(call, topology));
}

std::vector<Price> prices(const Choice& call, const Topology& topology) {
  std::vector<Price> prices;
  for (const Algorithm& family : algorithms_of(call.kind)) {
    prices.push_back(
        {family.name,
         cost(family, {.kind = call.kind, .bytes = call.bytes, .root = call.root}, topology)});
  }
  return prices;
}

std::string explain(const Choice& call, const Topology& topology) {
  std::vector<Price> all = prices(call, topology);
  const int chosen = cheapest(all);
  std::stable_sort(all.begin(), all.end(),
                   [](const Price& a, const Price& b) { return a.time < b.time; });
  std::string text = fmt::format("{} of {} bytes among {} ranks on {} hosts: {}\n", name(call.kind),
                                 call.bytes, topology.ranks(), topology.hosts().size(),
                                 algorithms_of(call.kind)[static_cast<std::size_t>(chosen)].name);
  for (const Price& price : all) {
    text += fmt::format("  {:<24} {:>14.2f} us  x{:.2f}\n", price.family,
                        static_cast<double>(price.time.count()) / 1e3,
                        all.front().time == Duration::zero()
                            ? 1.0
                            : static_cast<double>(price.time.count()) /
                                  static_cast<double>(all.front().time.count()));
  }
  return text;
}

}  // namespace motley
