// test/support/simt/races.h: which accesses of a grid to memory nothing orders. Ordered are those
// of one thread; those before a barrier of the block and after it; those before a __syncwarp of
// both lanes and after it; and those of an earlier block that it made visible by __threadfence and
// an atomic operation, on an address on which this block, later, did one too.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "test/support/simt/observer.h"

namespace motley::simt {

class Races {
 public:
  // An earlier access, and whether the block it belongs to is the one that runs.
  struct Earlier {
    bool this_block = true;
    std::uint32_t block = 0;   // in the order in which they ran
    std::uint32_t thread = 0;  // rank in its block; if several, one of them
    bool wrote = false;
    const void* place = nullptr;
  };
  struct Verdict {
    std::optional<Earlier> race;
    bool uninitialized = false;  // no thread of this block has written a byte that is read
  };

  // Shared memory begins anew with each block.
  enum class Memory { kGlobal, kShared };
  explicit Races(Memory memory) : memory_(memory) {}

  void block_begins(unsigned threads);
  void block_met();
  void warp_met(const Warp& warp, std::uint32_t mask);
  void fenced(unsigned thread);
  // An atomic operation on global memory, before touch().
  void meet_at(unsigned thread, const void* address);
  Verdict touch(unsigned thread, const Access& access);

 private:
  static constexpr std::size_t kPage = 4096;

  // One access of a thread; epoch 0: none. Epochs go on through all blocks of the grid.
  struct Mark {
    std::uint32_t epoch = 0;
    std::uint16_t thread = 0;
    std::uint16_t clock = 0;  // of the thread, since the epoch began
    std::int32_t place = 0;   // from an address of this program on
  };
  // Accesses that nothing orders among each other: of one thread, of lanes of a warp, of warps of a
  // block, of several blocks.
  enum class Many : std::uint8_t { kNone, kOne, kSomeLanes, kSomeWarps, kSomeBlocks };
  struct Marks {
    Mark last;
    std::uint32_t lanes = 0;  // index of lanes_, for kSomeLanes
    Many many = Many::kNone;
  };
  struct Byte {
    Mark write;
    Marks reads;
    Marks atomics;
  };
  using Clocks = std::array<std::uint16_t, kLanes>;  // of the lanes of a warp
  using Page = std::array<Byte, kPage>;
  // The last epoch of each thread's that is visible.
  using Published = std::vector<std::uint32_t>;

  Byte& byte_at(std::uintptr_t address);
  Clocks& clocks_of(unsigned thread);
  bool published(const Mark& mark) const;
  bool ordered(const Mark& mark, unsigned thread);
  bool all_ordered(const Marks& marks, unsigned thread);
  void add(Marks& marks, const Mark& mark);
  std::uint32_t block_of(std::uint32_t epoch) const;
  std::optional<Earlier> race(const Byte& byte, unsigned thread, Access::Kind kind);
  Earlier earlier(const Mark& mark, bool wrote) const;

  Memory memory_;
  std::uint32_t epoch_ = 0;
  std::uint32_t block_begin_ = 0;            // the block's first epoch
  std::vector<std::uint32_t> block_begins_;  // of all blocks so far
  std::vector<std::uint32_t> clocks_epoch_;  // for which clocks_ of a thread hold
  std::vector<Clocks> clocks_;               // what each thread knows of the lanes of its warp
  std::vector<std::array<std::uint16_t, kLanes>> lanes_;  // when lanes came, in this epoch
  Published fences_;                                      // when the block's threads last fenced
  std::unordered_map<std::uint32_t, std::shared_ptr<const Published>> seen_;  // by block
  std::unordered_map<const void*,
                     std::unordered_map<std::uint32_t, std::shared_ptr<const Published>>>
      meetings_;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
};

}  // namespace motley::simt
