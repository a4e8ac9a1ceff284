// test/support/fuzz.h: what fuzz drivers share.
#pragma once

#include <cstdlib>

namespace motley::test {

// Ends the run, so that libFuzzer keeps the input.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace motley::test
