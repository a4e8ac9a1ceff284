// What the kernels of comm would cost a device, counted by the emulator: they move each byte once,
// in whole sectors, and have no fault.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/kernel/reduce.h"
#include "test/support/elements.h"
#include "test/support/simt/check.h"

namespace motley {
namespace {

template <class T>
class KernelCost : public testing::Test {};
TYPED_TEST_SUITE(KernelCost, test::ElementTypes);

// Both as they come from an allocation; then both from their second element on.
TYPED_TEST(KernelCost, ReducesInHardlyMoreSectorsThanItsBytesFill) {
  using T = TypeParam;
  constexpr std::size_t kCount = 40'000;
  const DeviceBuffer a((kCount + 1) * sizeof(T)), b((kCount + 1) * sizeof(T));
  for (const std::size_t first : {0, 1}) {
    const View out = a.view(kCount + 1, dtype_of<T>).slice(first, kCount);
    const View in = b.view(kCount + 1, dtype_of<T>).slice(first, kCount);
    const simt::Report report =
        simt::checked([&] { reduce_on_device(out, in, ReduceOp::kSum, {}); });
    EXPECT_THAT(report.faults, testing::IsEmpty()) << report.text();
    const simt::Traffic global = report.total().global();
    EXPECT_LE(global.excess(), 1.05) << report.text();
    EXPECT_LE(report.total().reads.bytes, 2.01 * kCount * sizeof(T)) << report.text();
    EXPECT_EQ(report.total().writes.bytes, kCount * sizeof(T)) << report.text();
  }
}

}  // namespace
}  // namespace motley
