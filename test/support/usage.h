// test/support/usage.h: what this process has of its system.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace motley::test {

inline std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

inline std::ptrdiff_t entries(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

inline std::ptrdiff_t open_files() { return entries("/proc/self/fd"); }

inline std::ptrdiff_t threads() { return entries("/proc/self/task"); }

}  // namespace motley::test
