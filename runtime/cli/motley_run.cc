// motley-run: runs a program as the ranks of a job on this host.
//
//   motley-run -n 4 --slow 3:4 -- ./train --epochs 3
//
// Its command line is read by hand: half of it belongs to another program, and its help is short.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/version.h"
#include "runtime/launch.h"
#include "runtime/launch/arguments.h"

int main(int argc, char** argv, char** environment) {
  using motley::runtime::Action;
  constexpr int kWrongUse = 2;
  try {
    const auto arguments = motley::runtime::parse_arguments({argv + 1, argv + argc});
    if (arguments.action == Action::kHelp) {
      fmt::print("{}", motley::runtime::help_text());
    } else if (arguments.action == Action::kVersion) {
      fmt::print("motley-run {}\n", motley::version_text());
    } else {
      return motley::runtime::launch(arguments.launch, environment);
    }
    return 0;
  } catch (const motley::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.code() == motley::ErrorCode::kInvalid ? kWrongUse : 1;
  }
}
