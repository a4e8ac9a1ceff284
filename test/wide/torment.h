// test/wide/torment.h: motley-wide killed, interrupted, out of disk space and fed with truncated
// files at random moments, and its files looked at each time.
#pragma once

#include <cstdint>
#include <string>

namespace motley::wide {

struct Torment {
  std::string program;  // path of motley-wide
  std::string folder;   // to work in
  std::uint64_t seed = 1;
  int rounds = 0;      // at most; 0: until the seconds are over
  double seconds = 0;  // 0: until the rounds are over
};

struct TormentResult {
  int rounds = 0;
  int killed = 0;      // by SIGKILL, SIGINT or SIGTERM, before they were done
  int full = 0;        // failed for want of space
  int cut = 0;         // refused a truncated file
  int finished = 0;    // ended well all the same
  std::string broken;  // what was wrong first; empty: nothing
};

// Whatever happens to a run, the model and the cache of the last complete one must load,
// and in the end every run must come to its end.
TormentResult torment(const Torment& options);

}  // namespace motley::wide
