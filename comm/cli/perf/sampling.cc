#include "comm/cli/perf/sampling.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace motley::perf {
namespace {

constexpr int kMostCalls = 1 << 16;
constexpr int kMostSingles = 2000;
// A sample that is long enough is tried so often before that is believed: a process that has lost
// its core makes any sample long.
constexpr int kTries = 3;
constexpr double kSurelyLong = 0.1;  // seconds; no process is kept from its core for so long

// One sample: how long this rank took for the calls, and for all with the barrier before them.
struct Sample {
  double calls = 0;
  double all = 0;
};

Sample take_sample(Subject& subject, const Subject::Call& call, int calls, const Clock& clock) {
  const TimePoint begin = clock.now();
  subject.barrier();
  const TimePoint start = clock.now();
  for (int i = 0; i < calls; ++i) call();
  const TimePoint end = clock.now();
  return {to_seconds(end - start), to_seconds(end - begin)};
}

Sample slowest(Subject& subject, Sample sample) {
  double values[] = {sample.calls, sample.all};
  subject.greatest(values);
  return {values[0], values[1]};
}

// How many calls make a sample long enough, when `calls` of them took `time`. Grows in steps, as
// the first times are taken of caches that are cold.
int more_calls(int calls, double time, double wanted) {
  const double enough = std::ceil(1.2 * wanted / std::max(time, 1e-9) * calls);
  const double step = std::clamp(enough, calls + 1.0, 16.0 * calls);
  return static_cast<int>(std::min<double>(step, kMostCalls));
}

// Sets p50 and p99 from at most `limit` seconds of single calls, each of which takes `expected`.
void time_singles(Subject& subject, const Subject::Call& call, const Clock& clock, double limit,
                  double expected, Timing& timing) {
  const double many = std::clamp(limit / expected, 20.0, static_cast<double>(kMostSingles));
  std::vector<double> times(static_cast<std::size_t>(many));
  subject.barrier();
  for (double& time : times) {
    const TimePoint start = clock.now();
    call();
    time = to_seconds(clock.now() - start);
  }
  double values[] = {quantile(times, 0.5), quantile(times, 0.99)};
  subject.greatest(values);
  timing.p50 = values[0];
  timing.p99 = values[1];
}

}  // namespace

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  const double position = std::ceil(q * n) - 1;
  return values[static_cast<std::size_t>(std::clamp(position, 0.0, n - 1))];
}

Timing measure(Subject& subject, const Subject::Call& call, const SamplingRule& rule,
               const Clock& clock) {
  const double cap = to_seconds(rule.cap);
  const double wanted = to_seconds(rule.sample);
  Timing timing{.calls = 1};
  double spent = 0;
  std::vector<double> samples;  // of this rank
  Sample last;                  // on the slowest
  while (true) {
    const Sample mine = take_sample(subject, call, timing.calls, clock);
    samples.push_back(mine.calls);
    last = slowest(subject, mine);
    spent += last.all;
    const bool believed = samples.size() >= kTries || last.all >= kSurelyLong;
    if (timing.calls == kMostCalls || (spent >= cap / 4 && believed)) break;
    if (last.calls < wanted) {
      timing.calls = more_calls(timing.calls, last.calls, wanted);
      samples.clear();
    } else if (samples.size() == kTries) {
      break;
    }
  }
  const double affordable = (cap - spent) / std::max(last.all, 1e-9);
  const double wanted_more = rule.samples - static_cast<double>(samples.size());
  const int more = static_cast<int>(std::clamp(affordable, 0.0, std::max(wanted_more, 0.0)));
  for (int i = 0; i < more; ++i) {
    samples.push_back(take_sample(subject, call, timing.calls, clock).calls);
  }
  subject.greatest(samples);
  for (double& sample : samples) sample /= timing.calls;
  timing.samples = static_cast<int>(samples.size());
  timing.time = quantile(samples, 0.5);
  timing.least = quantile(samples, 0);
  timing.p50 = timing.time;
  timing.p99 = quantile(samples, 0.99);
  if (timing.calls > 1) time_singles(subject, call, clock, cap / 4, timing.time, timing);
  return timing;
}

}  // namespace motley::perf
