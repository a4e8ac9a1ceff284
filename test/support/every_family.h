// test/support/every_family.h: all families of schedules, for INSTANTIATE_TEST_SUITE_P.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/algorithm/families.h"

namespace motley::test {

struct Family {
  CallKind kind;
  const Algorithm* algorithm;
};

inline std::vector<Family> every_family() {
  std::vector<Family> families;
  for (int kind = 0; kind < kCallKinds; ++kind) {
    for (const Algorithm& algorithm : algorithms_of(static_cast<CallKind>(kind)))
      families.push_back({static_cast<CallKind>(kind), &algorithm});
  }
  return families;
}

inline std::string name_of(const testing::TestParamInfo<Family>& info) {
  return std::string(info.param.algorithm->name) + "_" + name(info.param.kind);
}

}  // namespace motley::test
