// How a call is timed: the same rule for Motley and for every library that it is compared with.
//
//   sample    K calls back to back after a barrier, K such that a sample lasts 0.3 ms or more; the
//             rank that takes longest counts
//   time      the median of the samples, divided by K; least is the shortest, likewise
//   p50, p99  of single calls, back to back, each timed by itself (one reading of the clock, some
//             20 ns, is in it); the rank with the greatest value counts
#pragma once

#include "comm/cli/perf/subject.h"
#include "comm/clock.h"

namespace motley::perf {

struct SamplingRule {
  Duration sample = std::chrono::microseconds(300);
  // After so long no sample is begun; but one is always taken, and three where each takes less than
  // 0.1 s: the first may have been held up.
  Duration cap = seconds(2);
  int samples = 60;  // at most
};

struct Timing {
  double time = 0;  // seconds, as are the next three
  double least = 0;
  double p50 = 0;
  double p99 = 0;
  int calls = 0;  // in a sample
  int samples = 0;
};

// All ranks together. They decide alike how often to call, as they only go by times that all know.
Timing measure(Subject& subject, const Subject::Call& call, const SamplingRule& rule,
               const Clock& clock);

// The value that a share `q` of `values` does not exceed (nearest rank). `values` is not empty.
double quantile(std::vector<double> values, double q);

}  // namespace motley::perf
