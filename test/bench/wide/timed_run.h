// test/bench/wide/timed_run.h: a program run to its end, and what that cost.
#pragma once

#include <string>
#include <vector>

namespace motley::wide {

struct TimedRun {
  double wall = 0;       // seconds
  double processor = 0;  // processor seconds, of all threads
  std::string output;
};

// Runs `command` in `folder`, where output.txt becomes what it printed. Throws kInvalid where it
// fails.
TimedRun timed_run(const std::vector<std::string>& command, const std::string& folder);

}  // namespace motley::wide
