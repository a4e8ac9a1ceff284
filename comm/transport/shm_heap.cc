#include "comm/transport/shm_heap.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

constexpr std::size_t kPage = 4096;

std::size_t whole_pages(std::size_t bytes) {
  return std::max<std::size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
}

}  // namespace

ShmHeap::ShmHeap(ShmSegment segment) : segment_(std::move(segment)) {
  if (!segment_.heap().empty()) free_.emplace(0, segment_.heap().size());
}

// The first block that is large enough: low addresses are used again and again.
std::byte* ShmHeap::take(std::size_t bytes) {
  const std::size_t wanted = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  std::size_t largest = 0;
  for (const auto& [offset, size] : free_) {
    largest = std::max(largest, size);
    if (size < wanted) continue;
    const auto block = free_.extract(offset);
    if (size > wanted) free_.emplace(block.key() + wanted, block.mapped() - wanted);
    return base() + block.key();
  }
  throw Error(ErrorCode::kUnavailable,
              fmt::format("shm: no room for {} bytes of shared memory: the largest free block of "
                          "{} has {}. Give buffers back, or raise the limits of the process.",
                          wanted, segment_.heap().size(), largest));
}

void ShmHeap::give_back(std::byte* data, std::size_t bytes) noexcept {
  // The pages too, for all who map them, or a copy that only we have.
  if (madvise(data, whole_pages(bytes), MADV_REMOVE) != 0) {
    madvise(data, whole_pages(bytes), MADV_DONTNEED);
  }
  recycle(data, bytes);
}

void ShmHeap::recycle(std::byte* data, std::size_t bytes) noexcept {
  const std::size_t offset = static_cast<std::size_t>(data - base());
  const std::size_t size = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  const auto lost = detached_.lower_bound(offset);
  if (lost != detached_.end() && lost->first < offset + size) return;
  auto it = free_.emplace(offset, size).first;
  const auto next = std::next(it);
  if (next != free_.end() && it->first + it->second == next->first) {
    it->second += next->second;
    free_.erase(next);
  }
  if (it == free_.begin()) return;
  const auto before = std::prev(it);
  if (before->first + before->second == it->first) {
    before->second += it->second;
    free_.erase(it);
  }
}

std::optional<std::uint64_t> ShmHeap::offset_of(const std::byte* data,
                                                std::size_t bytes) const noexcept {
  const std::span<std::byte> all = segment_.heap();
  if (data < all.data() || data + bytes > all.data() + all.size()) return std::nullopt;
  const auto offset = static_cast<std::size_t>(data - all.data());
  const std::lock_guard lock(mutex_);
  if (detached_.empty()) return offset;
  auto it = detached_.upper_bound(offset + bytes);
  if (it != detached_.begin() && (--it)->first + it->second > offset) return std::nullopt;
  return offset;
}

// Other threads may read the block meanwhile: its pages are exchanged in one step.
void ShmHeap::detach(std::byte* data, std::size_t bytes) noexcept {
  const std::size_t first = static_cast<std::size_t>(data - base()) / kPage * kPage;
  const std::size_t size = whole_pages(static_cast<std::size_t>(data - base()) + bytes - first);
  void* const copy =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return;  // no memory at all: the caller is about to fail anyway
  std::memcpy(copy, base() + first, size);
  // Not by the function: UCX puts one of its own in its place, which forgets the new address.
  syscall(SYS_mremap, copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, base() + first);
  const std::lock_guard lock(mutex_);
  std::size_t& known = detached_[first];
  known = std::max(known, size);
}

}  // namespace motley
