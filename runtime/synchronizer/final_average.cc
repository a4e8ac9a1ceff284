#include "runtime/synchronizer/final_average.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/group.h"
#include "runtime/gradient.h"

namespace motley::runtime {
namespace {

// One tag for each set of ranks (FNV-1a), so that survivors meet who learnt of deaths in different
// orders. Never 0, which is all ranks in training.
GroupTag tag_of(const std::vector<int>& ranks, std::uint32_t number) {
  std::uint64_t hash = 0xcbf29ce484222325u ^ number;
  for (const int rank : ranks) {
    hash = (hash ^ static_cast<std::uint64_t>(rank + 1)) * 0x100000001b3u;
  }
  return {.id = (hash % GroupTag::kPairBit) | 1};
}

// So little less than one of p that rounding the sum of p largest numbers does not overflow: each
// of the additions, and of the products before them, may round up by half a unit in the last place.
double weight_of(std::size_t p, DType dtype) {
  const auto terms = static_cast<double>(p);
  const double less = dtype == DType::kFloat64 ? std::max(0x1p-48, terms * 0x1p-52)
                                               : std::max(0x1p-20, terms * 0x1p-23);
  return (1 - less) / terms;
}

}  // namespace

SyncReport FinalAverage::over(const std::vector<int>& ranks, View parameters) const {
  const Group group(ranks, tag_of(ranks, number_));
  CallOptions call{.group = &group, .timeout = timeout_};
  std::vector<std::byte> mean(parameters.size_bytes());
  const TimePoint begin = comm_.clock().now();
  comm_.barrier(call).wait();
  const TimePoint met = comm_.clock().now();
  const View out(mean.data(), parameters.count, parameters.dtype);
  comm_.all_reduce(parameters, out, ReduceOp::kAverage, call).wait();
  // Where the sum was too large for a number, the average may be one. All see the same bits.
  if (is_floating(out.dtype) && !all_finite(out)) {
    call.weight = weight_of(ranks.size(), out.dtype);
    comm_.all_reduce(parameters, out, ReduceOp::kWeightedSum, call).wait();
  }
  std::copy(mean.begin(), mean.end(), parameters.data);
  return {.group = ranks, .waiting = met - begin, .averaging = comm_.clock().now() - met};
}

SyncReport FinalAverage::over_all(View parameters) const {
  return over(comm_.world().ranks(), parameters);
}

SyncReport FinalAverage::over_survivors(View parameters) const {
  std::vector<int> ranks = comm_.world().ranks();
  const TimePoint begin = comm_.clock().now();
  while (true) {
    const TimePoint attempt = comm_.clock().now();
    try {
      SyncReport report = over(ranks, parameters);
      report.waiting += attempt - begin;
      return report;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) throw;
      const std::size_t before = ranks.size();
      for (const int lost : error.ranks()) {
        if (lost != comm_.rank()) std::erase(ranks, lost);
      }
      if (ranks.size() == before) throw;
    }
  }
}

}  // namespace motley::runtime
