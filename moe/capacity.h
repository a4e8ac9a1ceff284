// moe/capacity.h: how many choices of an expert are served, and which go first where there are
// more.
//
//   CapacityRule rule{.factor = 1.25, .order = DropOrder::kPriority};
//   CapacityRule same = parse_capacity_rule("factor=1.25 order=priority");
//
// The capacity is of one logical expert for the tokens of one rank, so that plans need no exchange:
// W ranks together send an expert up to W times as much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "moe/routing.h"

namespace motley::moe {

// Who is served first. In the first three, every token's choice j goes before any token's choice
// j + 1, as in GShard; ties by position.
enum class DropOrder : std::uint8_t {
  kPosition,  // "position": tokens as they stand
  kPriority,  // "priority": higher Routing::priority first; batch prioritised, Riquelme et al. 2021
  kSeed,      // "seed": at random by seed, step and token id, whatever rank holds the token;
              // DeepSpeed's random token selection
  kWeight,    // "weight": heavier choices first, second choices too; Megatron's policy "probs"
};

// Which lost choices leave their share of the weight to the token's other choices.
enum class Renormalize : std::uint8_t {
  kUnreachable,  // "unreachable": those of experts without a live replica only
  kAll,          // "all": those over capacity too; GShard's top-2 in DeepSpeed
};

struct CapacityRule {
  double factor = 0;           // > 0: k * int(factor * ceil(T / E)); 0: nothing is dropped;
                               // < 0: as -factor, but no more than the fullest expert needs
  std::int64_t minimum = 0;    // what factor gives is raised to this, [0, 2^40]
  std::int64_t alignment = 1;  // then raised to a multiple of this, [1, 2^40]
  DropOrder order = DropOrder::kPosition;
  std::uint64_t seed = 0;  // with kSeed
  Renormalize renormalize = Renormalize::kUnreachable;
};

// Throws kInvalid, naming the field, its value and its range.
void validate(const CapacityRule& rule);

// Reads "factor=1.25 minimum=4 alignment=8 order=position seed=1 renormalize=all", any of them, and
// validates. Throws kInvalid on any other name or value, with those that exist.
CapacityRule parse_capacity_rule(std::string_view text);

struct CapacityCase {
  std::size_t tokens = 0;    // T: of the rank with most, where ranks should have one capacity
  int experts = 1;           // E
  int top_k = 1;             // k
  std::int64_t fullest = 0;  // largest count of an expert
};

// Choices of an expert that are served. May be 0, and may exceed the tokens.
std::int64_t capacity(const CapacityRule& rule, const CapacityCase& at);

// Each choice's place in its expert's queue, [tokens, top_k]; -1 for kNoExpert. Choices at places
// below the capacity are served. `step` is read by DropOrder::kSeed. Throws kInvalid if kPriority
// finds no priorities.
std::vector<std::int64_t> queue_places(const Routing& routing, const CapacityRule& rule,
                                       std::int64_t step = 0);

}  // namespace motley::moe
