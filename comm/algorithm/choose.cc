#include "comm/algorithm/choose.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"

namespace motley {
namespace {

bool cheaper(const Price& a, const Price& b) { return a.time < b.time; }

double microseconds(Duration time) { return static_cast<double>(time.count()) / 1e3; }

}  // namespace

std::size_t priced_bytes(CallKind kind, std::size_t bytes, int ranks) noexcept {
  return varies(kind) ? kAssumedBlock * static_cast<std::size_t>(ranks) : bytes;
}

int choose(const Choice& call, const Topology& topology) {
  if (algorithms_of(call.kind).size() == 1 && !call.whole) return 0;
  const std::vector<Price> all = prices(call, topology);
  return std::min_element(all.begin(), all.end(), cheaper)->index;
}

std::vector<Price> prices(const Choice& call, const Topology& topology) {
  std::vector<Price> prices;
  if (call.whole) prices.push_back({kWhole, kWholeName, *call.whole});
  const Shape shape{.size = topology.ranks(), .root = call.root, .topology = &topology};
  int index = 0;
  for (const Algorithm& family : algorithms_of(call.kind)) {
    const bool can = family.rest == nullptr || call.memory == Memory::kHost;
    if (can && (family.suits == nullptr || family.suits(shape))) {
      const Workload work{.kind = call.kind,
                          .bytes = priced_bytes(call.kind, call.bytes, shape.size),
                          .root = call.root,
                          .segment_bytes = call.segment_bytes};
      prices.push_back({index, family.name, cost(family, work, topology)});
    }
    ++index;
  }
  return prices;
}

std::string explain(const Choice& call, const Topology& topology) {
  std::vector<Price> all = prices(call, topology);
  std::stable_sort(all.begin(), all.end(), cheaper);
  const double least = std::max(1e-3, microseconds(all.front().time));
  std::string text = fmt::format("{} of {} bytes among {} ranks on {} hosts: {}\n", name(call.kind),
                                 priced_bytes(call.kind, call.bytes, topology.ranks()),
                                 topology.ranks(), topology.hosts().size(), all.front().family);
  for (const Price& price : all) {
    text += fmt::format("  {:<24} {:>14.2f} us  x{:.2f}\n", price.family, microseconds(price.time),
                        microseconds(price.time) / least);
  }
  return text;
}

}  // namespace motley
