// version_text() names the version and accounts for every optional package, found or not.
#include "comm/version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

namespace motley {
namespace {

TEST(Version, SaysWhatTheBuildIsAndWhatEachMissingPackageCosts) {
  std::istringstream lines(version_text());
  std::string line;
  std::getline(lines, line);
  EXPECT_TRUE(
      std::regex_match(line, std::regex("\\d+\\.\\d+\\.\\d+, commit ([0-9a-f]{12}|unknown)")))
      << line;
  for (const char* package : {"UCX", "CUDA", "NCCL", "HWLOC", "OPENBLAS"}) {
    std::getline(lines, line);
    const std::regex found_or_cost(package + std::string(" (\\d+\\.\\d+.*|not in this build: .+)"));
    EXPECT_TRUE(std::regex_match(line, found_or_cost)) << line;
  }
  EXPECT_FALSE(std::getline(lines, line)) << "more than expected: " << line;
}

}  // namespace
}  // namespace motley
