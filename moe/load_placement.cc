#include "moe/load_placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/error.h"

namespace motley::moe {
namespace {

using Loads = std::vector<double>;
using Indices = std::vector<std::size_t>;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalid, "moe load placement: " + what);
}

void require_divides(const char* parts_of, std::size_t count, const char* parts, int number) {
  if (number >= 1 && count % static_cast<std::size_t>(number) == 0) return;
  refuse(fmt::format("{} {} cannot be split evenly over {} {}.", count, parts_of, number, parts));
}

// Puts equally many items into each pack. Returns the items, pack by pack.
Indices pack(const Loads& load, std::size_t packs) {
  const std::size_t room = load.size() / packs;
  Indices heaviest(load.size());
  std::iota(heaviest.begin(), heaviest.end(), 0);
  // Nothing to balance where each pack takes one.
  if (room == 1) return heaviest;
  std::ranges::stable_sort(heaviest, std::greater(), [&](std::size_t i) { return load[i]; });
  std::vector<Indices> packed(packs);
  Loads weight(packs, 0.0);
  for (const std::size_t item : heaviest) {
    std::size_t lightest = packs;
    for (std::size_t p = 0; p < packs; ++p) {
      if (packed[p].size() == room) continue;
      if (lightest == packs || weight[p] < weight[lightest]) lightest = p;
    }
    packed[lightest].push_back(item);
    weight[lightest] += load[item];
  }
  Indices all;
  for (const Indices& items : packed) all.insert(all.end(), items.begin(), items.end());
  return all;
}

// Every item once, then again and again the one with most load per copy, up to `slots` copies.
Indices replicate(const Loads& load, std::size_t slots, std::vector<double>& copies) {
  Indices items(load.size());
  std::iota(items.begin(), items.end(), 0);
  copies.assign(load.size(), 1.0);
  while (items.size() < slots) {
    std::size_t most = 0;
    for (std::size_t i = 1; i < load.size(); ++i) {
      if (load[i] / copies[i] > load[most] / copies[most]) most = i;
    }
    items.push_back(most);
    ++copies[most];
  }
  return items;
}

// The experts of a host's slots, from the experts that it holds.
std::vector<std::int32_t> fill_host(const Loads& load, std::span<const std::size_t> experts,
                                    std::size_t slots, std::size_t ranks) {
  Loads mine;
  for (const std::size_t e : experts) mine.push_back(load[e]);
  std::vector<double> copies;
  const Indices items = replicate(mine, slots, copies);
  Loads per_copy;
  for (const std::size_t i : items) per_copy.push_back(mine[i] / copies[i]);
  std::vector<std::int32_t> filled;
  for (const std::size_t copy : pack(per_copy, ranks)) {
    filled.push_back(static_cast<std::int32_t>(experts[items[copy]]));
  }
  return filled;
}

void require_sizes(const ReplicationCase& input) {
  const auto slots = static_cast<std::size_t>(std::max(input.slots, 0));
  require_divides("slots", slots, "ranks", input.ranks);
  require_divides("ranks", static_cast<std::size_t>(input.ranks), "hosts", input.hosts);
  require_divides("experts", input.load.size(), "groups", input.groups);
  if (input.load.empty() || slots < input.load.size()) {
    refuse(
        fmt::format("{} slots for {} experts. Each expert needs one.", slots, input.load.size()));
  }
  for (std::size_t e = 0; e < input.load.size(); ++e) {
    if (std::isfinite(input.load[e]) && input.load[e] >= 0) continue;
    refuse(fmt::format("the load of expert {} is {}. Loads are finite and at least 0.", e,
                       input.load[e]));
  }
}

}  // namespace

std::vector<std::int32_t> replicate_by_load(const ReplicationCase& input) {
  require_sizes(input);
  const bool whole = input.groups % input.hosts != 0;
  const auto groups = static_cast<std::size_t>(whole ? 1 : input.groups);
  const auto hosts = static_cast<std::size_t>(whole ? 1 : input.hosts);
  const std::size_t size = input.load.size() / groups;
  const Loads load(input.load.begin(), input.load.end());
  Loads of_group(groups, 0.0);
  for (std::size_t e = 0; e < load.size(); ++e) of_group[e / size] += load[e];

  Indices experts;  // host by host
  for (const std::size_t group : pack(of_group, hosts)) {
    for (std::size_t i = 0; i < size; ++i) experts.push_back(group * size + i);
  }
  const std::size_t mine = experts.size() / hosts;
  std::vector<std::int32_t> slots;
  for (std::size_t host = 0; host < hosts; ++host) {
    const std::vector<std::int32_t> filled =
        fill_host(load, std::span(experts).subspan(host * mine, mine),
                  static_cast<std::size_t>(input.slots) / hosts,
                  static_cast<std::size_t>(input.ranks) / hosts);
    slots.insert(slots.end(), filled.begin(), filled.end());
  }
  return slots;
}

PlacementLayout layout_of(std::span<const std::int32_t> slots, const SlotCase& sizes) {
  require_divides("slots", slots.size(), "ranks", sizes.ranks);
  PlacementLayout layout{.epoch = sizes.epoch, .experts = sizes.experts, .ranks = sizes.ranks};
  const std::size_t of_rank = slots.size() / static_cast<std::size_t>(sizes.ranks);
  std::vector<int> replicas(static_cast<std::size_t>(sizes.experts), 0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || slots[i] >= sizes.experts) {
      refuse(fmt::format("slot {} holds expert {} of {}.", i, slots[i], sizes.experts));
    }
    layout.physical.push_back({.expert = slots[i],
                               .rank = static_cast<int>(i / of_rank),
                               .slot = static_cast<int>(i % of_rank),
                               .replica = replicas[static_cast<std::size_t>(slots[i])]++});
  }
  return layout;
}

}  // namespace motley::moe
