// motley-wide killed, interrupted, out of space and fed with truncated files at random moments:
// what it leaves must load each time. Prints how often each happened; exit code 1 if a file was
// broken.
//
//   wide_torment --seconds 60 --seed 1
#include <fmt/format.h>
#include <gflags/gflags.h>
#include <stdlib.h>

#include <filesystem>

#include "test/wide/torment.h"

DEFINE_double(seconds, 60, "to go on");
DEFINE_uint64(seed, 1, "of the moments");

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  std::string folder = std::filesystem::temp_directory_path() / "motley_torment_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return 2;
  const auto result = motley::wide::torment(
      {.program = MOTLEY_WIDE, .folder = folder, .seed = FLAGS_seed, .seconds = FLAGS_seconds});
  fmt::print(
      "seed {}: {} runs: {} killed, {} out of space, {} refused truncated input, {} finished\n{}\n",
      FLAGS_seed, result.rounds, result.killed, result.full, result.cut, result.finished,
      result.broken.empty() ? "nothing was broken" : "broken: " + result.broken);
  std::filesystem::remove_all(folder);
  return result.broken.empty() ? 0 : 1;
}
