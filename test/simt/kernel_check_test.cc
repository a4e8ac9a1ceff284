// The emulator's checks, on kernels with one planted fault each: it is reported where it is,
// and the same kernel without it is clean. Costs are counted exactly as worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test/simt/meeting_kernels.h"
#include "test/simt/planted_kernels.h"
#include "test/support/simt/check.h"
#include "test/support/simt/turns.h"

namespace motley::test {
namespace {

using simt::checked;
using simt::FaultKind;
using simt::Report;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Device memory for floats, all 0.
class Floats {
 public:
  explicit Floats(std::size_t n) : buffer_(n * sizeof(float)) {
    const std::vector<float> zeros(n);
    copy(buffer_.view(n, DType::kFloat32), zeros, {});
    synchronize({});
  }
  std::vector<float> read() const {
    std::vector<float> values(buffer_.size_bytes() / sizeof(float));
    copy(values, buffer_.view(values.size(), DType::kFloat32), {});
    synchronize({});
    return values;
  }
  template <class T = float>
  T* data() const {
    return reinterpret_cast<T*>(buffer_.view(0, DType::kFloat32).data);
  }

 private:
  DeviceBuffer buffer_;
};

struct Case {
  void (*run)(float*, Planted);
  FaultKind kind;
  const char* kernel;
  const char* what;
};

bool has_text(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

void PrintTo(const Case& one, std::ostream* out) { *out << one.kernel; }

class PlantedFault : public testing::TestWithParam<Case> {};

TEST_P(PlantedFault, IsReported) {
  const Case& one = GetParam();
  const Floats data(kPlantedThreads);
  const Report clean = checked([&] { one.run(data.data(), Planted::kNo); });
  EXPECT_THAT(clean.faults, IsEmpty()) << clean.text();
  const Report report = checked([&] { one.run(data.data(), Planted::kYes); });
  const auto is_it = [&](const simt::Fault& fault) {
    return fault.kind == one.kind && has_text(fault.kernel, one.kernel) &&
           has_text(fault.place, one.kernel) && has_text(fault.what, one.what);
  };
  EXPECT_TRUE(std::ranges::any_of(report.faults, is_it)) << report.text();
  // A race shows at each place that takes part, and where a value comes too late.
  if (one.kind != FaultKind::kRace) {
    EXPECT_THAT(report.faults, SizeIs(1)) << report.text();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PlantedFault,
    testing::Values(
        Case{neighbours, FaultKind::kRace, "neighbours_kernel", "shared memory that thread"},
        Case{lanes_share, FaultKind::kRace, "lanes_kernel", "shared memory that thread"},
        Case{blocks_add, FaultKind::kRace, "add_kernel", "block (0, 0, 0) thread (0, 0, 0) wrote"},
        Case{last_block_reads, FaultKind::kRace, "last_kernel", "reads 4 bytes of global memory"},
        Case{barrier_for_some, FaultKind::kExchange, "some_kernel", "waits at a barrier"},
        Case{barrier_after_return, FaultKind::kBarrier, "return_kernel", "it has returned"},
        Case{two_barriers, FaultKind::kBarrier, "two_kernel", "waits at another"},
        Case{half_a_shuffle, FaultKind::kExchange, "half_kernel", "mask 0xffffffff"},
        Case{leaver_of_a_group, FaultKind::kExchange, "group_kernel", "has returned"},
        Case{mask_without_self, FaultKind::kExchange, "self_kernel", "not in the mask 0xfffffffe"},
        Case{hole_in_shared, FaultKind::kUninitialized, "hole_kernel", "all that no thread"},
        Case{hole_in_dynamic, FaultKind::kUninitialized, "dynamic_hole_kernel", "dynamic_shared"},
        Case{one_too_far, FaultKind::kOutOfBounds, "shifted_kernel",
             "writes 4 bytes at byte 256 of a buffer of 256 bytes"},
        Case{one_before, FaultKind::kOutOfBounds, "shifted_kernel", "before a buffer of 256"},
        Case{beyond_dynamic, FaultKind::kOutOfBounds, "beyond_kernel", "byte 40 of 40"},
        Case{beyond_array, FaultKind::kOutOfBounds, "array_kernel", "index 64"},
        Case{words_of_8, FaultKind::kMisaligned, "off_kernel", "reads 8 bytes"},
        Case{words_of_16, FaultKind::kMisaligned, "off_kernel", "reads 16 bytes"},
        Case{vectors_of_2, FaultKind::kMisaligned, "off_kernel", "8 bytes"},
        Case{reads_of_2, FaultKind::kMisaligned, "off_kernel", "reads 8 bytes"},
        Case{vectors_of_4, FaultKind::kMisaligned, "off_kernel", "that is 4 beyond a multiple"},
        Case{reads_of_4, FaultKind::kMisaligned, "off_kernel", "that is 8 beyond a multiple"},
        Case{writes_of_2_doubles, FaultKind::kMisaligned, "off_kernel", "writes 16 bytes"},
        Case{adds_of_4, FaultKind::kMisaligned, "off_four_kernel", "updates 16 bytes"},
        Case{adds_of_2_halves, FaultKind::kMisaligned, "off_halves_kernel", "updates 4 bytes"}));

TEST(PlantedFaults, MemoryOfTheHostIsNoDevices) {
  const Floats data(std::size_t{2} * kPlantedThreads);
  const std::vector<float> host(1);
  const auto run = [&](Planted fault) {
    return checked([&] { touches(data.data(), host.data(), fault); });
  };
  EXPECT_THAT(run(Planted::kNo).faults, IsEmpty());
  const Report report = run(Planted::kYes);
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].kind, FaultKind::kOutOfBounds);
  EXPECT_EQ(report.faults[0].address, host.data());
}

TEST(PlantedFaults, NameBlockAndThread) {
  const Floats data(kPlantedThreads);
  const Report report = checked([&] { one_too_far(data.data(), Planted::kYes); });
  ASSERT_THAT(report.faults, SizeIs(1));
  EXPECT_EQ(report.faults[0].thread.x, 63u);
  EXPECT_EQ(report.faults[0].block.x, 0u);
  EXPECT_EQ(report.faults[0].address, data.data() + kPlantedThreads);
}

// Everything that meets rightly, the last block's sum by fences and an atomic included.
TEST(Checked, FindsNothingInKernelsThatAreRight) {
  const Floats in(10'000), out(64), partial(8), counter(1), counts(3), indices(400);
  const Report report = checked([&] {
    sum(out.data(), in.data(), 10'000, 8, {});
    last_block_sum(out.data(), partial.data(), counter.data<unsigned>(), in.data(), 10'000, 8, {});
    reversed(out.data(), in.data(), 64, {});
    votes(counts.data<std::int32_t>(), 3, 33, {});
    place(indices.data<std::int32_t>(), {});
  });
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_THAT(report.kernels, SizeIs(5));
}

// 64 floats are 8 sectors where side by side; with a stride of 2, 16 for the same bytes.
TEST(Costs, CountSectors) {
  const Floats out(kPlantedThreads), in(std::size_t{32} * kPlantedThreads + 1);
  const auto reads = [&](int offset, int stride) {
    const Report report = checked([&] { strided(out.data(), in.data() + offset, stride); });
    EXPECT_THAT(report.faults, IsEmpty()) << report.text();
    const simt::KernelReport& kernel = report.kernel("strided_kernel");
    EXPECT_EQ(kernel.writes.sectors, 8u);
    EXPECT_EQ(kernel.writes.excess(), 1);
    EXPECT_EQ(kernel.reads.instructions, 2u);
    EXPECT_EQ(kernel.reads.minimum, stride == 0 ? 2u : 8u);
    return kernel.reads.sectors;
  };
  EXPECT_EQ(reads(0, 1), 8u);
  EXPECT_EQ(reads(1, 1), 10u) << "each warp begins and ends inside a sector";
  EXPECT_EQ(reads(0, 2), 16u);
  EXPECT_EQ(reads(0, 32), 64u);
  EXPECT_EQ(reads(0, 0), 2u) << "all lanes read one float";
}

TEST(Costs, CountAVectorAsOneAccess) {
  constexpr std::size_t kCount = 4096;
  const Floats out(kCount), in(kCount);
  const Report report = checked([&] { copied_by_four(out.data(), in.data(), kCount); });
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_EQ(report.total().reads.instructions, kCount / 4 / 32);
  EXPECT_EQ(report.total().reads.bytes, kCount * 4);
  EXPECT_EQ(report.total().global().excess(), 1);
}

// Two warps store and load: with a stride of 1 each bank has one word; of 2, two; of 32, all 32.
TEST(Costs, CountBankConflicts) {
  const Floats out(kPlantedThreads);
  for (const auto& [stride, rounds] :
       std::vector<std::pair<int, unsigned>>{{1, 1}, {2, 2}, {3, 1}, {4, 4}, {32, 32}}) {
    const Report report = checked([&, stride = stride] { conflicting(out.data(), stride); });
    EXPECT_THAT(report.faults, IsEmpty()) << report.text();
    EXPECT_EQ(report.total().shared_instructions, 4u);
    EXPECT_EQ(report.total().bank_conflicts, 4u * (rounds - 1)) << "stride " << stride;
  }
}

// 256 threads in 4 blocks.
TEST(Costs, CountAtomicsOnOneAddress) {
  const Floats bins(kPlantedThreads);
  for (const unsigned spread : {1u, 2u, 64u}) {
    const Report report = checked([&] { histogram(bins.data<unsigned>(), spread); });
    EXPECT_EQ(report.total().atomic_operations, 256u);
    EXPECT_EQ(report.total().atomics_on_one_address, 256u / spread);
  }
  const Report report = checked([&] { shared_histogram(bins.data<unsigned>(), 4); });
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_EQ(report.total().atomic_operations, 256u + 4 * 4);
  EXPECT_EQ(report.total().atomics_on_one_address, 16u) << "16 threads of a block; 4 blocks";
}

TEST(Costs, CountAnAtomicOfFourFloatsOnce) {
  const Floats data(4);
  const Report report = checked([&] { atomics_by_four(data.data()); });
  EXPECT_THAT(report.faults, IsEmpty()) << report.text();
  EXPECT_EQ(report.total().atomics_on_one_address, 3u * kPlantedThreads);
  EXPECT_THAT(data.read(), ElementsAre(192, 384, 576, 768));
}

TEST(Costs, CountDivergentBranches) {
  const Floats data(std::size_t{2} * kPlantedThreads);
  const auto divergent = [&](int lanes) {
    return checked([&] { forked(data.data(), lanes); }).total().divergent_branches;
  };
  EXPECT_EQ(divergent(0), 0u);
  EXPECT_EQ(divergent(32), 0u);
  EXPECT_EQ(divergent(1), 2u) << "one in each of two warps";
  EXPECT_EQ(divergent(31), 2u);
  // Lane i goes i % 4 times: some leave before the first, second and third time.
  const Report report = checked([&] { loops(data.data(), 4); });
  EXPECT_EQ(report.total().divergent_branches, 2u * 3) << report.text();
  EXPECT_EQ(checked([&] { loops(data.data(), 1); }).total().divergent_branches, 0u);
}

TEST(AtOnce, BlocksTakeTurnsAtTheirBarriers) {
  const auto seen = [](unsigned blocks) {
    const simt::AtOnce at_once(blocks);
    const Floats data(4);
    reads_meets_adds(data.data());
    return data.read();
  };
  EXPECT_THAT(seen(1), ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(seen(2), ElementsAre(3, 0, 0, 1)) << "the third begins when the first has ended";
  EXPECT_THAT(seen(8), ElementsAre(3, 0, 0, 0));
}

TEST(Checked, AddsUpLaunches) {
  const Floats data(kPlantedThreads);
  const Report report = checked([&] {
    for (int i = 0; i < 3; ++i) neighbours(data.data(), Planted::kNo);
  });
  EXPECT_EQ(report.kernel("neighbours_kernel").launches, 3u);
  EXPECT_EQ(report.kernel("neighbours_kernel").reads.sectors, 3u * 8);
  EXPECT_THROW(report.kernel("no such kernel"), std::out_of_range);
  EXPECT_THAT(checked([] {}).kernels, IsEmpty());
}

}  // namespace
}  // namespace motley::test
