#include "comm/topology/crowd.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "comm/algorithm/cost.h"
#include "comm/algorithm/families.h"

namespace motley {
namespace {

constexpr std::size_t kShort = 1 << 10;  // bytes of calls in which the speed does not count

using Field = void (*)(TopologyCosts&, double factor);

Duration scaled(Duration time, double factor) {
  const double ns = std::clamp(static_cast<double>(time.count()) * factor, 1.0, 1e9);
  return Duration(std::llround(ns));
}

void latency(TopologyCosts& costs, double factor) {
  costs.within.latency = scaled(costs.within.latency, factor);
}
void per_message(TopologyCosts& costs, double factor) {
  costs.within.per_message = scaled(costs.within.per_message, factor);
}
void per_turn(TopologyCosts& costs, double factor) {
  costs.per_turn = scaled(costs.per_turn, factor);
}
// The one for the other, which alone would be uphill.
void turns_for_messages(TopologyCosts& costs, double factor) {
  per_turn(costs, factor);
  per_message(costs, 1 / factor);
}
void messages_for_latency(TopologyCosts& costs, double factor) {
  per_message(costs, factor);
  latency(costs, 1 / factor);
}
void speed(TopologyCosts& costs, double factor) {
  costs.within.bytes_per_second =
      std::clamp(costs.within.bytes_per_second * factor, 1e6, costs.copy_bytes_per_second);
}

class Fit {
 public:
  Fit(int ranks, int cores, std::vector<CallTime> times, std::size_t segment_bytes)
      : times_(std::move(times)), segment_bytes_(segment_bytes) {
    host_.ranks.resize(static_cast<std::size_t>(ranks));
    std::iota(host_.ranks.begin(), host_.ranks.end(), 0);
    host_.cores = cores;
  }

  double error(const TopologyCosts& costs) const {
    const Topology topology({host_}, costs);
    double sum = 0;
    for (const CallTime& call : times_) {
      const auto& family =
          algorithms_of(CallKind::kAllReduce)[static_cast<std::size_t>(call.algorithm)];
      const Duration price =
          cost(family,
               {.kind = CallKind::kAllReduce, .bytes = call.bytes, .segment_bytes = segment_bytes_},
               topology);
      const double off = std::log(std::max(1.0, static_cast<double>(price.count())) / call.time);
      sum += off * off;
    }
    return sum;
  }

  // From `costs`, factors that get smaller.
  TopologyCosts improve(TopologyCosts costs, const std::vector<Field>& fields) const {
    double least = error(costs);
    for (double step = 4; step > 1.12;) {
      bool better = false;
      for (const Field field : fields) {
        for (const double factor : {step, 1 / step}) {
          TopologyCosts other = costs;
          field(other, factor);
          const double off = error(other);
          if (off >= least) continue;
          least = off;
          costs = other;
          better = true;
          break;
        }
      }
      if (!better) step = std::sqrt(step);
    }
    return costs;
  }

 private:
  Host host_;
  std::vector<CallTime> times_;
  std::size_t segment_bytes_;
};

}  // namespace

TopologyCosts fit_crowd(const TopologyCosts& costs, int ranks, int cores,
                        const std::vector<CallTime>& times, std::size_t segment_bytes) {
  std::vector<CallTime> few;
  std::vector<CallTime> many;
  for (const CallTime& call : times) (call.bytes <= kShort ? few : many).push_back(call);
  const Fit brief(ranks, cores, few, segment_bytes);
  TopologyCosts best;
  double least = 1e300;
  for (const Duration turn : {Duration(5), Duration(1'500)}) {  // there may be two valleys
    TopologyCosts from = costs;
    from.per_turn = turn;
    from.within.latency = std::max(from.within.latency, Duration(50));
    from.within.per_message = std::max(from.within.per_message, Duration(20));
    const TopologyCosts found = brief.improve(
        from, {latency, per_message, per_turn, turns_for_messages, messages_for_latency});
    const double off = brief.error(found);
    if (off < least) {
      least = off;
      best = found;
    }
  }
  return Fit(ranks, cores, many, segment_bytes).improve(best, {speed});
}

}  // namespace motley
