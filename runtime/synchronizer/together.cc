#include "runtime/synchronizer/together.h"

#include <cstddef>

namespace motley::runtime {

SyncReport Together::average(View parameters) { return meet(parameters, 1, options_.timeout); }

SyncReport Together::finish(View parameters) {
  const TimePoint called = comm_.clock().now();
  while (!meet(parameters, 0, options_.finish_timeout).group.empty()) {
  }
  const TimePoint alone = comm_.clock().now();
  SyncReport report = final_.over_all(parameters);
  report.waiting += alone - called;
  return report;
}

// All say first whether they still make steps, which also shows when all have come.
SyncReport Together::meet(View parameters, std::int8_t working, Duration timeout) {
  const CallOptions call{.timeout = timeout};
  const TimePoint called = comm_.clock().now();
  std::vector<std::int8_t> all(static_cast<std::size_t>(comm_.size()));
  comm_.all_gather(std::vector<std::int8_t>{working}, all, call).wait();
  const TimePoint together = comm_.clock().now();
  SyncReport report{.waiting = together - called};
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (all[static_cast<std::size_t>(rank)] != 0) report.group.push_back(rank);
  }
  if (report.group.size() == all.size()) {
    comm_.all_reduce(parameters, ReduceOp::kAverage, call).wait();
  } else if (!report.group.empty()) {
    CallOptions weighted = call;
    weighted.weight = working / static_cast<double>(report.group.size());
    comm_.all_reduce(parameters, ReduceOp::kWeightedSum, weighted).wait();
  }
  report.averaging = comm_.clock().now() - together;
  return report;
}

}  // namespace motley::runtime
