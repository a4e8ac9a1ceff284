#include "comm/executor/lossy_average.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "comm/convert.h"
#include "comm/error.h"
#include "comm/executor/slices.h"
#include "comm/quantize.h"

namespace motley {
namespace {

constexpr int kBlock = 128;
// Larger would be no numbers as bfloat16, or as int8 times its scale.
constexpr float kMost = 3.38e38F;

// Behind each shortened result: of how many elements the whole is, as lengths near each other may
// take the same bytes.
constexpr std::size_t kCountBytes = sizeof(std::uint64_t);

void grow(std::vector<std::byte>& memory, std::size_t size) {
  if (memory.size() < size) memory.resize(size);
}

std::size_t total(const std::vector<std::size_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

}  // namespace

// int8: the scales first, so that they are aligned.
std::size_t LossyAverage::packed_bytes(std::size_t n) const noexcept {
  if (payload_ == Payload::kBFloat16) return 2 * n;
  return 4 * scale_count(n, kBlock) + (n + 3) / 4 * 4;
}

void LossyAverage::pack(std::byte* out, const float* values, std::size_t n) const {
  const ConstView in(reinterpret_cast<const std::byte*>(values), n, DType::kFloat32);
  if (payload_ == Payload::kBFloat16) return convert(View(out, n, DType::kBFloat16), in);
  const std::size_t scales = scale_count(n, kBlock);
  quantize({.values = View(out + 4 * scales, n, DType::kInt8),
            .scales = View(out, scales, DType::kFloat32),
            .block = kBlock},
           in);
}

void LossyAverage::unpack(float* values, const std::byte* in, std::size_t n) const {
  const View out(reinterpret_cast<std::byte*>(values), n, DType::kFloat32);
  auto* const bytes = const_cast<std::byte*>(in);  // a Quantized that is only read
  if (payload_ == Payload::kBFloat16) return convert(out, ConstView(in, n, DType::kBFloat16));
  const std::size_t scales = scale_count(n, kBlock);
  dequantize(out, {.values = View(bytes + 4 * scales, n, DType::kInt8),
                   .scales = View(bytes, scales, DType::kFloat32),
                   .block = kBlock});
}

void LossyAverage::operator()(const Group& group, const AveragePlan& plan, ConstView own,
                              View average, TimePoint deadline) {
  const std::size_t n = own.count;
  const std::size_t p = plan.weights.size();
  const auto me = static_cast<std::size_t>(group.index_of(comm_.rank()));
  const std::vector<std::size_t> each = slice_counts(n, p);
  if (remainder_.size() != n) remainder_.assign(n, 0);
  next_.assign(n, 0);
  std::vector<std::size_t> to(p), from(p), all(p);
  for (std::size_t i = 0; i < p; ++i) {
    all[i] = packed_bytes(each[i]) + kCountBytes;
    if (i == me) continue;
    if (plan.weights[me] > 0) to[i] = packed_bytes(each[i]);
    if (plan.weights[i] > 0) from[i] = packed_bytes(each[me]);
  }
  grow(sent_, total(to));
  grow(received_, total(from));
  grow(result_, all[me]);
  grow(results_, total(all));
  if (plan.weights[me] > 0) shorten(own.as<const float>().data(), each, me);
  const auto options = [&] {
    return CallOptions{.group = &group, .timeout = left_until(deadline, comm_.clock())};
  };
  comm_
      .all_to_all_v(ConstBlocks{ConstView(sent_.data(), total(to), DType::kInt8), to},
                    Blocks{View(received_.data(), total(from), DType::kInt8), from}, options())
      .wait();
  const std::size_t begin =
      std::accumulate(each.begin(), each.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
  average_slice(from, plan, each[me], begin, me);
  const auto count = static_cast<std::uint64_t>(n);
  std::memcpy(result_.data() + all[me] - kCountBytes, &count, kCountBytes);
  comm_
      .all_gather_v(ConstView(result_.data(), all[me], DType::kInt8),
                    Blocks{View(results_.data(), total(all), DType::kInt8), all}, options())
      .wait();
  check_counts(group, all, count);
  const std::byte* in = results_.data();
  auto* out = reinterpret_cast<float*>(average.data);
  for (std::size_t i = 0; i < p; in += all[i], out += each[i], ++i) unpack(out, in, each[i]);
}

// Every member has what all others say, so that all of them find it.
void LossyAverage::check_counts(const Group& group, const std::vector<std::size_t>& all,
                                std::uint64_t count) const {
  const std::byte* end = results_.data();
  for (std::size_t i = 0; i < all.size(); ++i) {
    end += all[i];
    std::uint64_t other;
    std::memcpy(&other, end - kCountBytes, kCountBytes);
    if (other == count) continue;
    throw Error(ErrorCode::kMismatch,
                fmt::format("partial_reduce: rank {} averages {} elements, and rank {} averages "
                            "{}. Pass models of the same size.",
                            comm_.rank(), count, group.ranks()[i], other));
  }
}

// What this member sends, and what that leaves out; its own slice stays whole.
void LossyAverage::shorten(const float* own, const std::vector<std::size_t>& each, std::size_t me) {
  const std::size_t n = remainder_.size();
  whole_.resize(n);
  for (std::size_t i = 0; i < n; ++i) whole_[i] = std::clamp(own[i] + remainder_[i], -kMost, kMost);
  restored_.resize(n);
  std::byte* out = sent_.data();
  std::size_t begin = 0;
  for (std::size_t i = 0; i < each.size(); begin += each[i], ++i) {
    if (i == me) continue;
    pack(out, whole_.data() + begin, each[i]);
    unpack(restored_.data() + begin, out, each[i]);
    out += packed_bytes(each[i]);
    for (std::size_t k = begin; k < begin + each[i]; ++k) next_[k] = whole_[k] - restored_[k];
  }
}

void LossyAverage::average_slice(const std::vector<std::size_t>& from, const AveragePlan& plan,
                                 std::size_t n, std::size_t begin, std::size_t me) {
  sum_.assign(n, 0);
  restored_.resize(std::max(restored_.size(), n));
  const std::byte* in = received_.data();
  int givers = 0;
  for (std::size_t j = 0; j < from.size(); in += from[j], ++j) {
    const double weight = plan.weights[j];
    if (weight == 0) continue;
    ++givers;
    const float* values = whole_.data() + begin;
    if (j != me) {
      unpack(restored_.data(), in, n);
      values = restored_.data();
    }
    for (std::size_t k = 0; k < n; ++k) sum_[k] += weight * static_cast<double>(values[k]);
  }
  std::vector<float>& mean = restored_;
  for (std::size_t k = 0; k < n; ++k) mean[k] = static_cast<float>(sum_[k]);
  pack(result_.data(), mean.data(), n);
  unpack(mean.data(), result_.data(), n);
  for (std::size_t k = 0; k < n; ++k) {
    next_[begin + k] = static_cast<float>(givers * (sum_[k] - static_cast<double>(mean[k])));
  }
}

}  // namespace motley
