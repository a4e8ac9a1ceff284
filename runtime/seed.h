// runtime/seed.h: generators of random numbers, each a function of what it is for, so that a run
// can be repeated, and resumed in the middle without any generator's state.
//
//   std::mt19937_64 random = make_generator({.seed = 1, .rank = comm.rank(), .purpose = "dropout",
//                                            .epoch = epoch});
#pragma once

#include <cstdint>
#include <random>
#include <string_view>

namespace motley::runtime {

struct Seed {
  std::uint64_t seed = 0;         // of the run
  int rank = 0;                   // 0 where all workers must draw the same, as for initial values
  std::string_view purpose = "";  // what draws: two purposes share no numbers
  std::int64_t epoch = 0;
};

// 64 well mixed bits: those of two inputs that differ in anything are unrelated. The same on every
// machine.
std::uint64_t mix(const Seed& seed) noexcept;
std::mt19937_64 make_generator(const Seed& seed);

}  // namespace motley::runtime
