#include "comm/executor/group_average.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "comm/error.h"
#include "comm/executor/slices.h"
#include "comm/kernel/combine.h"
#include "comm/weights.h"

namespace motley {
namespace {

// Sources beyond kMaxCombined are added to what has been combined.
void combine_all(std::byte* out, std::vector<const std::byte*> sources, std::vector<double> weights,
                 std::size_t n, DType dtype) {
  const Combine combine(dtype, ReduceOp::kWeightedSum);
  while (true) {
    const std::size_t now = std::min(sources.size(), kMaxCombined);
    combine(out, sources.data(), static_cast<int>(now), n, weights.data());
    if (now == sources.size()) return;
    const auto done = static_cast<std::ptrdiff_t>(now) - 1;
    sources.erase(sources.begin(), sources.begin() + done);
    weights.erase(weights.begin(), weights.begin() + done);
    sources.front() = out;
    weights.front() = 1;
  }
}

// The bits of the largest number are one less than those of infinity.
template <class Bits>
void bound_bits(View data, Bits infinity) noexcept {
  constexpr Bits kMagnitude = (Bits{1} << (8 * sizeof(Bits) - 1)) - 1;
  for (std::size_t i = 0; i < data.count; ++i) {
    Bits bits;
    std::memcpy(&bits, data.data + i * sizeof(Bits), sizeof(Bits));
    if ((bits & kMagnitude) != infinity) continue;
    --bits;
    std::memcpy(data.data + i * sizeof(Bits), &bits, sizeof(Bits));
  }
}

}  // namespace

bool AveragePlan::is_uniform() const noexcept {
  return std::all_of(weights.begin(), weights.end(),
                     [this](double weight) { return weight == weights.front(); });
}

Request begin_average(Communicator& comm, const Group& group, const AveragePlan& plan,
                      ConstView own, View average, Duration timeout) {
  CallOptions options{.group = &group, .timeout = timeout, .deterministic = plan.deterministic};
  if (plan.is_uniform() && !plan.large) {
    return comm.all_reduce(own, average, ReduceOp::kAverage, options);
  }
  options.weight = plan.weights[static_cast<std::size_t>(group.index_of(comm.rank()))];
  // What a member has that gives nothing may be no numbers at all.
  const bool gives = options.weight != 0;
  if (!gives && average.count > 0) std::memset(average.data, 0, average.size_bytes());
  return comm.all_reduce(gives ? own : ConstView(average), average, ReduceOp::kWeightedSum,
                         options);
}

void bound(View average) noexcept {
  switch (average.dtype) {
    case DType::kFloat64:
      return bound_bits<std::uint64_t>(average, 0x7ff0000000000000u);
    case DType::kFloat32:
      return bound_bits<std::uint32_t>(average, 0x7f800000u);
    case DType::kBFloat16:
      return bound_bits<std::uint16_t>(average, 0x7f80u);
    default:
      return;  // float16 is added as float32, which has room for the sum of an average
  }
}

void GroupAverage::operator()(const Group& group, const AveragePlan& plan, ConstView own,
                              View average, TimePoint deadline) {
  if (plan.damped && !plan.is_uniform()) {
    return damped_average(group, plan, own, average, deadline);
  }
  begin_average(comm_, group, plan, own, average, left_until(deadline, comm_.clock())).wait();
}

// Member j gets slice j of all, combines it once for each member, and gives each its own.
void GroupAverage::damped_average(const Group& group, const AveragePlan& plan, ConstView own,
                                  View average, TimePoint deadline) {
  const std::size_t p = plan.weights.size();
  const auto me = static_cast<std::size_t>(group.index_of(comm_.rank()));
  const DType dtype = own.dtype;
  const std::vector<std::size_t> each = slice_counts(own.count, p);
  const std::vector<std::size_t> mine(p, each[me]);
  const std::size_t slice_bytes = each[me] * size_bytes(dtype);
  for (std::vector<std::byte>* memory : {&slices_, &combined_}) {
    if (memory->size() < p * slice_bytes) memory->resize(p * slice_bytes);
  }
  const View slices(slices_.data(), p * each[me], dtype);
  const View combined(combined_.data(), p * each[me], dtype);
  const auto options = [&] {
    return CallOptions{.group = &group, .timeout = left_until(deadline, comm_.clock())};
  };
  comm_.all_to_all_v(ConstBlocks{own, each}, Blocks{slices, mine}, options()).wait();

  std::vector<const std::byte*> sources;
  std::vector<std::size_t> givers;
  for (std::size_t j = 0; j < p; ++j) {
    if (plan.weights[j] == 0) continue;
    givers.push_back(j);
    sources.push_back(slices_.data() + j * slice_bytes);
  }
  const std::vector<double> matrix = damped(plan.weights);
  std::vector<double> row(givers.size());
  for (std::size_t i = 0; i < p; ++i) {
    for (std::size_t k = 0; k < givers.size(); ++k) row[k] = matrix[i * p + givers[k]];
    combine_all(combined_.data() + i * slice_bytes, sources, row, each[me], dtype);
  }
  comm_.all_to_all_v(ConstBlocks{combined, mine}, Blocks{average, each}, options()).wait();
}

}  // namespace motley
