// Programs run as children, several at once, with a limit on their time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/clock.h"

namespace motley::perf {

struct Command {
  std::vector<std::string> words;  // the program, searched in PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> environment = {};  // added to ours
};

// Starts all, waits until all have ended, and kills what is left of them after `limit`. Returns an
// empty string if each ended with 0; else which did not, how, and the last lines of the output.
// This process must have one thread.
std::string run_all(const std::vector<Command>& commands, Duration limit);

}  // namespace motley::perf
