// wide/cli/command_line.h: one command's arguments to gflags, with usage errors as exceptions.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace motley::wide {

// What the user typed cannot be understood; ends in exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sets the flags in `arguments` and returns the rest. Accepts --name=value, --name value, -name
// value, --bool and --nobool; `--` ends the flags. Only flags in `allowed` exist; an entry "model
// m" gives the flag `model` the second name `m`. Throws UsageError, naming flag and value.
std::vector<std::string> parse_flags(std::span<char* const> arguments,
                                     const std::vector<std::string>& allowed);

}  // namespace motley::wide
