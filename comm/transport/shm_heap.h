// comm/transport/shm_heap.h: one rank's memory that its peers map too, dealt out by that rank.
//
// Blocks start at pages. What was given back is used again before fresh memory, so that calls cause
// no page faults once they have run. A block that a peer may still write to when its owner must go
// on is detached: the owner keeps the addresses and the contents, on memory of its own, and the
// peer keeps the old memory, which is never dealt out again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "comm/shared_buffer.h"
#include "comm/transport/shm_segment.h"

namespace motley {

class ShmHeap final : public SharedBuffer::Owner {
 public:
  // The heap of `segment`, which it keeps mapped.
  explicit ShmHeap(ShmSegment segment);

  const ShmSegment& segment() const noexcept { return segment_; }
  std::byte* base() const noexcept { return segment_.heap().data(); }

  // `bytes` rounded up to pages. Any thread, as the next ones. Throws kUnavailable if there is no
  // room.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* data, std::size_t bytes) noexcept override;
  // The same, keeping the pages for the next take().
  void recycle(std::byte* data, std::size_t bytes) noexcept;

  // Where `bytes` bytes at `data` lie, from base(), if peers see them.
  std::optional<std::uint64_t> offset_of(const std::byte* data, std::size_t bytes) const noexcept;
  // From now on peers see nothing of what is written to these bytes, and write nothing to them.
  void detach(std::byte* data, std::size_t bytes) noexcept;

 private:
  ShmSegment segment_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::size_t> free_;      // offset -> bytes; neighbours are one
  std::map<std::size_t, std::size_t> detached_;  // offset -> bytes
};

}  // namespace motley
