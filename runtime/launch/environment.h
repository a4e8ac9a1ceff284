// What a rank finds in its environment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/launch.h"

namespace motley::runtime {

// The value of `name` in `environment`; empty if it is not there.
std::string_view value_of(const std::vector<std::string>& environment, std::string_view name);

// `environment` without what tells a rank its place, in case we are run by a rank ourselves.
std::vector<std::string> without_place(std::vector<std::string> environment);

struct Place {
  int rank = 0;
  std::string controller;
  std::string token;
};

// What `place` finds: `environment`, its place, and the options.
std::vector<std::string> rank_environment(std::vector<std::string> environment, const Place& place,
                                          const LaunchOptions& options);

}  // namespace motley::runtime
