// moe/routing.h: what a gate decided about a batch of tokens: which logical experts see a token and
// with what weight. Where those experts live is a Placement's matter; which choices are carried out
// is a Plan's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::moe {

// A place without a choice: the token is masked, or its gate chose fewer experts than top_k.
inline constexpr std::int32_t kNoExpert = -1;

// Choice j of token t is at t * top_k + j. A token's choices are distinct and stand in the order of
// preference, which drops respect: choice 0 is served first.
struct Routing {
  std::size_t tokens = 0;
  int top_k = 0;
  std::vector<std::int32_t> expert;  // [tokens, top_k], in [0, experts) or kNoExpert
  std::vector<float> weight;         // [tokens, top_k], of each output in the sum; 0 for kNoExpert
  std::vector<std::int64_t> count;   // [experts], choices of each, before any is dropped
  std::vector<float> priority;       // [tokens], who is served first; empty: nobody asks
  std::vector<std::int64_t> token;   // [tokens], ids unique over all ranks; empty: 0, 1, …
};

// Throws kInvalid, naming the token and choice, where a size is wrong, an expert is out of range or
// chosen twice, a weight is not finite or at no expert, or the counts are not those of the choices.
void validate(const Routing& routing);

// Overwrites routing.count, of `experts` numbers, with the choices as they stand.
void count_choices(Routing& routing, int experts);

}  // namespace motley::moe
