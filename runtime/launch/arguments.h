// The command line of motley-run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/launch.h"

namespace motley::runtime {

enum class Action : std::uint8_t { kLaunch, kHelp, kVersion };

struct Arguments {
  Action action = Action::kLaunch;
  LaunchOptions launch;
};

// From what follows the program's name. Options end at "--" or at the first word that is none.
// "--name value" and "--name=value" are the same, as are '-' and '_' inside a name.
// Throws kInvalid, naming the option and its value.
Arguments parse_arguments(const std::vector<std::string>& words);

// Fits a screen of 25 lines.
std::string help_text();

}  // namespace motley::runtime
