// What the programs that measure a peer library have in common: motley-perf's flags, cells, timing
// rule and report, so that only the library differs.
#pragma once

#include <fmt/format.h>

#include <cstdio>

#include "comm/cli/perf/flags.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/run.h"
#include "comm/version.h"

namespace motley::perf {

// Measures what the flags ask for and returns the exit code. Errors end in a line on stderr.
inline int run_peer(Subject& subject, const char* program, const std::string& transport) {
  try {
    const Plan plan = plan_from_flags();
    if (subject.rank() != 0) {
      run(subject, plan, Clock::real(), nullptr);
      return 0;
    }
    Report report({.program = program,
                   .library = subject.library(),
                   .commit = commit_text(),
                   .ranks = subject.size(),
                   .transport = transport},
                  json_path(), stdout);
    run(subject, plan, Clock::real(), &report);
    return report.wrong_cells() == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return 2;
  }
}

}  // namespace motley::perf
