// test/bench/wide/bench_main.h: what main() of each benchmark of wide does.
#pragma once

#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cstdio>
#include <exception>
#include <filesystem>

namespace motley::wide {

// Reads the flags and runs `run`; what it throws is printed behind the program's name.
template <class Run>
int bench_main(int argc, char** argv, Run run) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    run();
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", std::filesystem::path(argv[0]).filename().string(),
               error.what());
    return 1;
  }
}

}  // namespace motley::wide
