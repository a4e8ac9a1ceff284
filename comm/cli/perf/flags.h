// The flags that say which cells are measured: the same for motley-perf and for the programs that
// measure its peers.
#pragma once

#include <string>

#include "comm/cli/perf/plan.h"

namespace motley::perf {

// Parses the command line by gflags, which moves its words about. --help prints `usage`, each flag
// and what the columns mean, and exits with 0, as --version does; a flag that does not exist exits
// with 1. Throws kInvalid on arguments that are no flags.
void parse_command_line(int argc, char** argv, const char* usage);

// What the flags ask for. Throws kInvalid, naming flag, value and what may stand there.
Plan plan_from_flags();

// --json.
std::string json_path();

}  // namespace motley::perf
