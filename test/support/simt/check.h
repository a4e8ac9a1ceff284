// test/support/simt/check.h: runs kernels in the emulator, and reports their faults and what their
// accesses would cost a device.
//
//   const simt::Report report = simt::checked([&] { reduce_on_device(out, in, op, {}); });
//   EXPECT_THAT(report.faults, IsEmpty()) << report.text();
//   EXPECT_LE(report.total().global().excess(), 1.05);
//
// Needs kernels that were compiled to tell of their accesses: by motley_kernels() in builds of GCC
// without sanitizers. Compile such tests only where CMake's MOTLEY_KERNEL_CHECKS holds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "test/support/simt/fault.h"

namespace motley::simt {

// Accesses of warps to global memory. What lanes of a warp access at the same place of the program
// for the k-th time each since the block's last barrier is one instruction.
struct Traffic {
  std::uint64_t instructions = 0;
  std::uint64_t bytes = 0;    // different ones, of each instruction
  std::uint64_t sectors = 0;  // of 32 bytes, of each instruction
  std::uint64_t minimum = 0;  // sectors, were the bytes of each instruction side by side

  double excess() const noexcept {
    return minimum == 0 ? 1 : static_cast<double>(sectors) / static_cast<double>(minimum);
  }
  Traffic& operator+=(const Traffic& other) noexcept;
};

struct KernelReport {
  std::string name;  // without parameters
  std::uint64_t launches = 0;
  std::uint64_t blocks = 0;

  Traffic reads;
  Traffic writes;
  Traffic atomics;
  Traffic global() const noexcept;  // all three

  std::uint64_t shared_instructions = 0;
  // Rounds beyond the first that they take, since lanes want different words of one of the 32
  // banks of 4 bytes. Accesses of 8 and 16 bytes go by half and quarter warps.
  std::uint64_t bank_conflicts = 0;

  std::uint64_t atomic_operations = 0;  // of threads, in global and shared memory
  // On the address that had most: of one launch in global, of one block in shared memory.
  std::uint64_t atomics_on_one_address = 0;

  // Times that lanes of a warp went different ways from the same place, entered for the k-th time
  // by each. A loop that lanes leave at different times counts once for each time that some leave.
  // Choices that the compiler made without a branch are none, as on a device.
  std::uint64_t divergent_branches = 0;

  KernelReport& operator+=(const KernelReport& other);
};

struct Report {
  std::vector<Fault> faults;          // each place once
  std::vector<KernelReport> kernels;  // by name

  KernelReport total() const;
  // The only kernel whose name contains `part`.
  const KernelReport& kernel(const std::string& part) const;
  std::string text() const;
};

// Runs `body`, and all that it puts into streams, to the end. Faults are reported, not thrown; what
// comes after one that ends its kernel may be wrong. One at a time in a process.
Report checked(const std::function<void()>& body);

}  // namespace motley::simt
