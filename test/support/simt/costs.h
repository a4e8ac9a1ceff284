// test/support/simt/costs.h: counts what the accesses and branches of a grid would cost a device.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "test/support/simt/check.h"
#include "test/support/simt/observer.h"

namespace motley::simt {

enum class Space { kGlobal, kShared };

class Costs {
 public:
  void block_begins(unsigned threads);
  void touch(const Thread& thread, const Access& access, Space space);
  void enter(const Thread& thread, const void* place);
  // All threads are at a barrier.
  void block_met() { ++barriers_; }
  // Adds the block to the sums.
  void block_ends();
  // All but the name, of the grid.
  KernelReport report() const;

 private:
  // What the lanes of a warp do at one place, each for the k-th time.
  struct Instruction {
    std::array<std::uintptr_t, kLanes> at{};
    std::uint32_t lanes = 0;
    std::uint32_t bytes = 0;
  };
  struct Place {
    Access::Kind kind = Access::Kind::kRead;
    Space space = Space::kGlobal;
    std::array<std::uint32_t, kLanes> times{};  // of each lane
    std::uint64_t barriers = 0;                 // of the block, when it was last counted
    std::vector<Instruction> instructions;
  };
  struct Step {
    const void* next = nullptr;
    bool divergent = false;
  };
  struct Fork {
    std::array<std::uint32_t, kLanes> times{};
    std::vector<Step> steps;
  };
  struct WarpCosts {
    std::unordered_map<std::uintptr_t, Place> places;
    std::unordered_map<const void*, Fork> forks;
    std::array<const void*, kLanes> last{};  // where each lane is
  };

  void add(const Place& place, const Instruction& instruction);

  std::uint64_t barriers_ = 0;
  std::vector<WarpCosts> warps_;
  std::unordered_map<const void*, std::uint64_t> shared_atomics_;  // of the block
  std::unordered_map<const void*, std::uint64_t> global_atomics_;
  KernelReport sums_;
};

}  // namespace motley::simt
