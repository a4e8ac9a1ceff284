#include "comm/cli/perf/payload.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "comm/kernel/ops.h"

namespace motley::perf {
namespace {

// Values repeat with a period that no power of two divides, so that what lands at the wrong place
// is seen. For sums they are small; a product would soon be too large of anything but ones and
// twos.
constexpr int kSumPeriod = 7;
constexpr int kProductPeriod = 61;
constexpr int kCopyPeriod = 97;

int period(const Cell& cell) {
  if (!reduces(cell.kind)) return kCopyPeriod;
  return cell.op == ReduceOp::kProduct ? kProductPeriod : kSumPeriod;
}

// Element `i` of what rank `source` passes in to be reduced.
int term(const Cell& cell, int source, std::size_t i) {
  const std::size_t p = static_cast<std::size_t>(period(cell));
  const std::size_t place = (static_cast<std::size_t>(source) + i) % p;
  return cell.op == ReduceOp::kProduct ? 1 + (place == 0) : 1 + static_cast<int>(place);
}

// Element `i` of the block that goes from rank `source` to `target`.
int copied(int source, int target, std::size_t i) {
  const auto place = static_cast<std::size_t>(source) * 31 + static_cast<std::size_t>(target) * 17;
  return 1 + static_cast<int>((place + i) % kCopyPeriod);
}

double reduced(const Cell& cell, int ranks, std::size_t i) {
  double result = term(cell, 0, i);
  for (int source = 1; source < ranks; ++source) {
    const double x = term(cell, source, i);
    switch (cell.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
      case ReduceOp::kWeightedSum:  // every weight is 1
        result += x;
        break;
      case ReduceOp::kProduct:
        result *= x;
        break;
      case ReduceOp::kMin:
        result = std::fmin(result, x);
        break;
      case ReduceOp::kMax:
        result = std::fmax(result, x);
        break;
    }
  }
  return result;
}

// Relative rounding error of one operation in T; 0 for integers.
template <class T>
constexpr double rounding() {
  if constexpr (std::is_same_v<T, half>) return 0x1p-11;
  if constexpr (std::is_same_v<T, bfloat16>) return 0x1p-8;
  if constexpr (std::is_floating_point_v<T>) return std::numeric_limits<T>::epsilon() / 2;
  return 0;
}

// The result as T has it, and how far a right one may be from it.
template <class T>
struct Expected {
  double value = 0;
  double tolerance = 0;
};

template <class T>
Expected<T> expected(const Cell& cell, int ranks, std::size_t i) {
  double value = reduced(cell, ranks, i);
  if constexpr (std::is_integral_v<T>) {
    const auto wrapped = static_cast<T>(static_cast<std::int64_t>(value));
    return {static_cast<double>(cell.op == ReduceOp::kAverage ? divided(wrapped, ranks) : wrapped)};
  }
  const bool exact = value * rounding<T>() <= 0.5;  // every partial sum fits into the mantissa
  if (cell.op == ReduceOp::kAverage) value /= ranks;
  const int roundings = (exact ? 0 : ranks) + (cell.op == ReduceOp::kAverage ? 1 : 0);
  return {value, roundings * rounding<T>() * value};
}

template <class T>
double as_double(T value) {
  if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// Of a result that begins with element `first` of what is reduced.
template <class T>
std::size_t wrong_sums(const Cell& cell, int ranks, std::size_t first, std::span<const T> out) {
  const auto p = static_cast<std::size_t>(period(cell));
  std::vector<Expected<T>> table(p);
  for (std::size_t i = 0; i < p; ++i) table[i] = expected<T>(cell, ranks, i);
  std::size_t wrong = 0;
  std::size_t place = first % p;
  for (const T& element : out) {
    const Expected<T>& right = table[place];
    wrong += !(std::fabs(as_double(element) - right.value) <= right.tolerance);
    if (++place == p) place = 0;
  }
  return wrong;
}

// The block that rank `source` sent to `target`.
template <class T>
std::size_t wrong_copies(int source, int target, std::span<const T> block) {
  std::size_t wrong = 0;
  std::size_t i = 0;
  for (const T& element : block) wrong += as_double(element) != copied(source, target, i++);
  return wrong;
}

template <class T>
T cast(int value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return T(static_cast<float>(value));
  }
}

}  // namespace

void fill(const Cell& cell, int rank, int ranks, View in) {
  const std::size_t block = std::max<std::size_t>(block_count(cell, ranks), 1);
  dispatch(in.dtype, [&]<class T>() {
    std::size_t i = 0;
    for (T& element : in.as<T>()) {
      const int target = takes_blocks(cell.kind) ? static_cast<int>(i / block) : 0;
      element = cast<T>(reduces(cell.kind) ? term(cell, rank, i) : copied(rank, target, i % block));
      ++i;
    }
  });
}

std::size_t wrong(const Cell& cell, int rank, int ranks, ConstView out) {
  const std::size_t block = block_count(cell, ranks);
  std::size_t result = 0;
  dispatch(out.dtype, [&]<class T>() {
    const std::span<const T> elements = out.as<const T>();
    if (reduces(cell.kind)) {
      const bool scattered = cell.kind == CallKind::kReduceScatter;
      const std::size_t first = scattered ? static_cast<std::size_t>(rank) * block : 0;
      result = wrong_sums<T>(cell, ranks, first, elements);
      return;
    }
    const int target = takes_blocks(cell.kind) ? rank : 0;
    if (!gives_blocks(cell.kind)) {
      const bool passed_on = cell.kind == CallKind::kSendRecv;
      result =
          wrong_copies<T>(passed_on ? (rank + ranks - 1) % ranks : cell.root, target, elements);
      return;
    }
    for (int source = 0; source < ranks && !elements.empty(); ++source) {
      const std::size_t first = static_cast<std::size_t>(source) * block;
      result += wrong_copies<T>(source, target, elements.subspan(first, block));
    }
  });
  return result;
}

}  // namespace motley::perf
