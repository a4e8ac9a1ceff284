// test/support/elements.h: tests over all element types. Small whole numbers are exact in every
// type, so every operation on them has one right answer.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "comm/communicator.h"

namespace motley::test {

using ElementTypes = testing::Types<double, float, half, bfloat16, std::int8_t, std::int16_t,
                                    std::int32_t, std::int64_t>;

template <class T>
T element(int x) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(x);
  } else {
    return T(static_cast<float>(x));
  }
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

// All-reduces of `n` elements by every operation, among three ranks.
template <class T>
void expect_every_operation(Communicator& comm, std::size_t n) {
  ASSERT_EQ(comm.size(), 3);
  const auto expect = [&](ReduceOp op, int due) {
    std::vector<T> data(n, element<T>(2 * comm.rank() + 2));  // 2, 4, 6
    comm.all_reduce(data, op).wait();
    const auto right = [due](T x) { return static_cast<float>(x) == static_cast<float>(due); };
    EXPECT_EQ(std::ranges::count_if(data, right), std::ssize(data)) << name(op) << " of " << n;
  };
  expect(ReduceOp::kSum, 12);
  expect(ReduceOp::kProduct, 48);
  expect(ReduceOp::kMin, 2);
  expect(ReduceOp::kMax, 6);
  expect(ReduceOp::kAverage, 4);
}

}  // namespace motley::test
