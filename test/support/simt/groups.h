// test/support/simt/groups.h: cooperative groups: the block, tiles of up to a warp of it, and lanes
// that happen to run together.
#pragma once

#include "test/support/simt/intrinsics.h"
#include "test/support/simt/launch.h"
#include "test/support/simt/warp.h"

namespace cooperative_groups {

class thread_block {  // NOLINT: the names are CUDA's
 public:
  unsigned size() const noexcept { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const noexcept { return size(); }
  unsigned thread_rank() const noexcept {
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  }
  dim3 group_index() const noexcept { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
  dim3 thread_index() const noexcept { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
  void sync() const { __syncthreads(); }
};

inline thread_block this_thread_block() { return {}; }
inline void sync(const thread_block& block) { block.sync(); }

// kSize neighbouring threads: a power of two, at most a warp.
template <unsigned kSize>
class thread_block_tile {  // NOLINT: the names are CUDA's
  static_assert(kSize > 0 && kSize <= 32 && (kSize & (kSize - 1)) == 0);

 public:
  static constexpr unsigned size() noexcept { return kSize; }
  static constexpr unsigned num_threads() noexcept { return kSize; }
  unsigned thread_rank() const noexcept { return thread_block().thread_rank() % kSize; }
  unsigned meta_group_rank() const noexcept { return thread_block().thread_rank() / kSize; }
  unsigned meta_group_size() const noexcept { return (thread_block().size() + kSize - 1) / kSize; }
  void sync() const { __syncwarp(mask()); }

  template <class T>
  T shfl(T value, int rank) const {
    return __shfl_sync(mask(), value, rank, kWidth);
  }
  template <class T>
  T shfl_up(T value, unsigned by) const {
    return __shfl_up_sync(mask(), value, by, kWidth);
  }
  template <class T>
  T shfl_down(T value, unsigned by) const {
    return __shfl_down_sync(mask(), value, by, kWidth);
  }
  template <class T>
  T shfl_xor(T value, unsigned by) const {
    return __shfl_xor_sync(mask(), value, static_cast<int>(by), kWidth);
  }
  int any(int predicate) const { return __any_sync(mask(), predicate); }
  int all(int predicate) const { return __all_sync(mask(), predicate); }
  unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> shift(); }
  template <class T>
  unsigned match_any(T value) const {
    return __match_any_sync(mask(), value) >> shift();
  }

 private:
  static constexpr int kWidth = static_cast<int>(kSize);
  static unsigned shift() noexcept { return thread_block().thread_rank() % 32 / kSize * kSize; }
  static unsigned mask() noexcept { return 0xffffffffu >> (32 - kSize) << shift(); }
};

template <unsigned kSize>
thread_block_tile<kSize> tiled_partition(const thread_block&) {
  return {};
}

class coalesced_group {  // NOLINT: the names are CUDA's
 public:
  unsigned size() const noexcept { return static_cast<unsigned>(__popc(mask_)); }
  unsigned num_threads() const noexcept { return size(); }
  unsigned thread_rank() const noexcept {
    return static_cast<unsigned>(__popc(mask_ & ((1u << lane()) - 1)));
  }
  void sync() const { __syncwarp(mask_); }

  // By rank in the group; beyond its ends each keeps its own.
  template <class T>
  T shfl(T value, unsigned rank) const {
    return __shfl_sync(mask_, value, lane_of(rank % size()));
  }
  template <class T>
  T shfl_up(T value, unsigned by) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank < by ? rank : rank - by);
  }
  template <class T>
  T shfl_down(T value, unsigned by) const {
    const unsigned rank = thread_rank();
    return shfl(value, rank + by < size() ? rank + by : rank);
  }
  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const { return packed(__ballot_sync(mask_, predicate), mask_); }
  template <class T>
  unsigned match_any(T value) const {
    return packed(__match_any_sync(mask_, value), mask_);
  }

 private:
  explicit coalesced_group(unsigned mask) : mask_(mask) {}
  friend coalesced_group coalesced_threads();
  template <class Label>
  friend coalesced_group labeled_partition(const coalesced_group& group, Label label);

  static unsigned lane() noexcept { return thread_block().thread_rank() % 32; }
  int lane_of(unsigned rank) const noexcept {
    unsigned rest = mask_;
    for (unsigned i = 0; i < rank; ++i) rest &= rest - 1;
    return __ffs(static_cast<int>(rest)) - 1;
  }
  // The bits of `lanes` at those of `mask`, close together.
  static unsigned packed(unsigned lanes, unsigned mask) noexcept {
    unsigned bits = 0, rank = 0;
    for (unsigned rest = mask; rest != 0; rest &= rest - 1, ++rank)
      bits |= (lanes >> (__ffs(static_cast<int>(rest)) - 1) & 1u) << rank;
    return bits;
  }

  unsigned mask_;
};

inline coalesced_group coalesced_threads() { return coalesced_group(motley::simt::coalesce()); }
// Those of a group that bring the same label.
template <class Label>
coalesced_group labeled_partition(const coalesced_group& group, Label label) {
  return coalesced_group(__match_any_sync(group.mask_, label));
}

}  // namespace cooperative_groups
