// test/bench/partial/pattern.h: how unequal workers are, and how they are made so on a machine
// whose cores are all alike.
//
// A step is computed and then lengthened by sleeping to what the pattern says, so that two cores
// carry sixteen workers. Workers that share a device sleep in slices, one at a time. Under a quota
// of the processor nothing sleeps: a step burns as much time of the processor as it is long, and
// the kernel lets the last worker have a fourth of a core only.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley::bench {

// How long steps take, in base steps; all have a jitter of 5 % as well.
struct Pattern {
  std::string name;
  double slowest = 1;  // so many times slower may be who waits for all
};
// homogeneous, one_x2, one_x4, one_x8, half_x2, half_x4: the last worker, or the last half, slower.
// random: each step of all takes 3 more with probability 0.1. burst: the last worker pauses for 100
// once. authors: each step of all takes 5 more with probability 0.1, as in the experiments
// published with partial-reduce. shared_2, shared_3: the first two or three workers share a device.
// quota_x4: as one_x4, but by a quota of the processor: for as many workers as cores, as root.
const std::vector<Pattern>& patterns();
// Throws kInvalid if there is none of this name.
const Pattern& find_pattern(const std::string& name);
// How many times slower a worker is in the mean, pauses left out.
double slowness(const Pattern& pattern, int rank, int workers);

// Makes the steps of one worker as long as they are to be.
class Steps {
 public:
  // `folder`, of all workers, has the file by which they share a device. Throws kUnavailable where
  // the kernel sets this process no quota.
  Steps(const Pattern& pattern, int rank, int workers, std::uint64_t seed,
        const std::string& folder);
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;
  ~Steps();

  // Of step `number`, which began at `begin`; a base step takes `base`.
  void lengthen(std::int64_t number, TimePoint begin, Duration base);

 private:
  class Quota;

  double length(std::int64_t number);
  void sleep_shared(Duration left) const;

  Pattern pattern_;
  int rank_;
  int workers_;
  std::mt19937_64 random_;
  int device_ = -1;  // descriptor of the file of a device that is shared
  std::unique_ptr<Quota> quota_;
  Duration burnt_{};  // time of the processor that this process had used when the step began
};

}  // namespace motley::bench
