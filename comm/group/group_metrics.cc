#include "comm/group/group_metrics.h"

#include <algorithm>
#include <cmath>

namespace motley {

void Histogram::add(double value) noexcept {
  const double times = value / first;
  const int power = times < 1 ? 0 : 1 + static_cast<int>(std::log2(times));
  ++buckets[std::min(static_cast<std::size_t>(power), kBuckets - 1)];
  ++count;
  sum += value;
  most = std::max(most, value);
}

std::vector<WorkerMetrics> GroupMetrics::stragglers() const {
  std::vector<WorkerMetrics> ranking = workers;
  std::erase_if(ranking, [](const WorkerMetrics& worker) { return worker.step == Duration{}; });
  std::stable_sort(ranking.begin(), ranking.end(),
                   [](const WorkerMetrics& a, const WorkerMetrics& b) { return a.step > b.step; });
  return ranking;
}

MetricsKeeper::MetricsKeeper(int size)
    : ready_(static_cast<std::size_t>(size)), formed_(static_cast<std::size_t>(size)) {
  kept_.workers.resize(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) worker(rank).rank = rank;
}

void MetricsKeeper::ready(int rank, bool gives, TimePoint now) {
  ready_[static_cast<std::size_t>(rank)] = now;
  if (gives) return;
  ++kept_.not_finite;
  ++worker(rank).not_finite;
}

void MetricsKeeper::formed(const std::vector<int>& members, TimePoint now) {
  if (members.size() == 1) ++kept_.solos;
  kept_.size.add(static_cast<double>(members.size()));
  for (const int rank : members) {
    const Duration wait = now - ready_[static_cast<std::size_t>(rank)];
    kept_.waits.add(to_seconds(wait));
    worker(rank).waited += wait;
    ++worker(rank).groups;
    formed_[static_cast<std::size_t>(rank)] = now;
  }
}

void MetricsKeeper::weighed(const std::vector<double>& weights, const std::vector<int>& givers,
                            const std::vector<std::int64_t>& versions) {
  if (versions.empty()) return;
  const std::int64_t newest = *std::max_element(versions.begin(), versions.end());
  for (std::size_t i = 0; i < givers.size(); ++i) {
    const std::int64_t lag = newest - versions[i];
    kept_.staleness.add(static_cast<double>(lag));
    worker(givers[i]).lag = lag;
    kept_.least_weight = std::min(kept_.least_weight, weights[i]);
    kept_.most_weight = std::max(kept_.most_weight, weights[i]);
  }
}

void MetricsKeeper::committed(const std::vector<int>& members, TimePoint now) {
  for (const int rank : members) {
    kept_.averaging.add(to_seconds(now - formed_[static_cast<std::size_t>(rank)]));
  }
}

void MetricsKeeper::suspected(int rank) {
  if (rank >= 0 && rank < static_cast<int>(kept_.workers.size())) ++worker(rank).suspected;
}

void MetricsKeeper::late(Duration by) { kept_.late = std::max(kept_.late, by); }

}  // namespace motley
