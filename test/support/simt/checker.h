// test/support/simt/checker.h: watches the blocks of one grid for check.h.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "test/support/device_heap.h"
#include "test/support/simt/costs.h"
#include "test/support/simt/races.h"

namespace motley::simt {

class Checker final : public Observer {
 public:
  Checker(const Shape& shape, const Call& call, std::vector<test::DeviceHeap::Block> buffers);

  void block_begins(BlockRunner& runner) override;
  void block_ends(BlockRunner& runner) override;
  void touch(Thread& thread, const Access& access) override;
  void enter(Thread& thread, const void* place) override;
  void fenced(Thread& thread) override;
  void warp_met(const Warp& warp, std::uint32_t mask) override;
  void block_met(BlockRunner& runner) override;
  void gave_up(BlockRunner& runner, const GivenUp& why) override;

  const std::vector<Fault>& faults() const noexcept { return faults_; }
  KernelReport report() const;

 private:
  enum class Where { kOwn, kShared, kGlobal, kNowhere };

  Where where(const Thread& thread, const Access& access) const;
  bool in_shared(const Access& access) const;
  const test::DeviceHeap::Block* buffer_near(const void* address) const;
  std::string outside(const Access& access) const;
  std::string conflict(const Thread& thread, const Access& access,
                       const Races::Earlier& other) const;
  void add(FaultKind kind, const Thread& thread, const void* address, const void* place,
           const void* other_place, const std::string& what);

  Shape shape_;
  const Call& call_;
  std::string kernel_;
  std::vector<test::DeviceHeap::Block> buffers_;  // by address
  std::vector<uint3> blocks_;                     // in the order in which they ran
  Races shared_{Races::Memory::kShared};
  Races global_{Races::Memory::kGlobal};
  Costs costs_;
  std::vector<Fault> faults_;
  std::map<std::tuple<FaultKind, const void*, const void*>, bool> known_;
};

}  // namespace motley::simt
