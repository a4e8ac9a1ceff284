// comm/group/group_metrics.h: what the controller counts of the groups of partial-reduce.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "comm/clock.h"
#include "comm/group/group_table.h"

namespace motley {

// Counts by powers of two: bucket i has what is below first * 2^i, the last one all that is not.
struct Histogram {
  static constexpr std::size_t kBuckets = 24;

  double first = 1;
  std::array<std::uint64_t, kBuckets> buckets{};
  std::uint64_t count = 0;
  double sum = 0;
  double most = 0;

  void add(double value) noexcept;
  double mean() const noexcept { return count == 0 ? 0 : sum / static_cast<double>(count); }
};

struct WorkerMetrics {
  int rank = -1;
  std::uint64_t groups = 0;     // that it was in
  double participation = 0;     // that, over the mean of all that train
  Duration step{};              // from a group to being ready again, of late; zero: not known
  Duration waited{};            // for groups, all together
  std::int64_t lag = 0;         // steps by which its model was behind the newest, of late
  std::uint64_t suspected = 0;  // times that others blamed it for a failure
  std::uint64_t not_finite = 0;
  bool trains = true;
};

struct GroupMetrics {
  std::uint32_t epoch = 0;
  int live = 0;      // ranks with a lease
  int training = 0;  // of those, that have not left
  int waiting = 0;   // for a group, now
  int running = 0;   // groups, now
  int group_size = 0;
  int components = 0;  // see SyncGraph
  std::uint64_t solos = 0;
  std::uint64_t spans_disconnected = 0;
  std::uint64_t holds = 0;
  std::uint64_t holds_in_vain = 0;
  std::uint64_t not_finite = 0;  // contributions that counted nothing
  GroupTable::Counts groups;     // with the aborts by reason
  Histogram size{.first = 1};
  Histogram waits{.first = 1e-4};      // seconds from ready to group
  Histogram averaging{.first = 1e-4};  // from group to commit
  Histogram staleness{.first = 1};
  double least_weight = 1;  // of those that counted
  double most_weight = 0;
  double consensus = 0;                // distance of models, where P is adapted
  Duration late{};                     // by which the controller's timers were behind at the worst
  std::vector<WorkerMetrics> workers;  // by rank

  // Whoever takes longest for a step first; those whose step is not known are left out.
  std::vector<WorkerMetrics> stragglers() const;
};

// Kept while groups come and go; O(1) for each member.
class MetricsKeeper {
 public:
  explicit MetricsKeeper(int size);

  void ready(int rank, bool gives, TimePoint now);
  void formed(const std::vector<int>& members, TimePoint now);
  void weighed(const std::vector<double>& weights, const std::vector<int>& givers,
               const std::vector<std::int64_t>& versions);
  void committed(const std::vector<int>& members, TimePoint now);
  void suspected(int rank);
  void late(Duration by);

  // What has been kept; the rest is filled in by the controller.
  GroupMetrics snapshot() const { return kept_; }

 private:
  WorkerMetrics& worker(int rank) { return kept_.workers[static_cast<std::size_t>(rank)]; }

  GroupMetrics kept_;
  std::vector<TimePoint> ready_;   // by rank
  std::vector<TimePoint> formed_;  // by rank
};

}  // namespace motley
