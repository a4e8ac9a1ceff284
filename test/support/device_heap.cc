#include "test/support/device_heap.h"

#include <sys/mman.h>

#include <cassert>
#include <cstdlib>
#include <cstring>

#include "comm/error.h"

namespace motley::test {
namespace {

constexpr std::size_t kPage = 4096;
// Bytes before and after each block that nobody may touch.
constexpr std::size_t kGuard = 4 * kPage;

// The pages of a block.
struct Pages {
  void* begin;
  std::size_t size_bytes;
};

Pages pages_of(const DeviceHeap::Block& block) {
  const std::size_t phase = reinterpret_cast<std::uintptr_t>(block.data) % kPage;
  return {block.data - phase, (phase + block.size_bytes + kPage - 1) / kPage * kPage};
}

}  // namespace

void* DeviceHeap::allocate(std::size_t size_bytes, Kind kind, int device, std::size_t limit) {
  if (used_bytes(kind, device) + size_bytes > limit) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::size_t reserved = kGuard + phase_ + size_bytes + kPage + kGuard;
  void* const all =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw_errno("mapping memory of an emulated device");
  std::byte* const data = static_cast<std::byte*>(all) + kGuard + phase_;
  const Block block{data, size_bytes, kind, device};
  const Pages pages = pages_of(block);
  if (mprotect(pages.begin, pages.size_bytes, PROT_READ | PROT_WRITE) != 0) throw_errno("mprotect");
  std::memset(data, 0xc7, size_bytes);
  blocks_[reinterpret_cast<std::uintptr_t>(data)] = block;
  if (kind == Kind::kDevice && !accessible_) mprotect(pages.begin, pages.size_bytes, PROT_NONE);
  return data;
}

void DeviceHeap::set_phase(std::size_t bytes) {
  assert(bytes < kPage);
  const std::lock_guard lock(mutex_);
  phase_ = bytes;
}

DeviceHeap::Block DeviceHeap::release(void* data) {
  Block block;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(data));
    assert(found != blocks_.end());
    block = found->second;
    blocks_.erase(found);
  }
  // The addresses stay taken, so that who still uses them is found where it does.
  const Pages pages = pages_of(block);
  if (mmap(pages.begin, pages.size_bytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
    std::abort();
  }
  return block;
}

std::optional<DeviceHeap::Block> DeviceHeap::find(const void* data) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(mutex_);
  auto above = blocks_.upper_bound(address);
  if (above == blocks_.begin()) return std::nullopt;
  const Block& block = (--above)->second;
  const Pages pages = pages_of(block);
  if (address - reinterpret_cast<std::uintptr_t>(pages.begin) >= pages.size_bytes + kGuard)
    return std::nullopt;
  return block;
}

std::vector<DeviceHeap::Block> DeviceHeap::all() {
  const std::lock_guard lock(mutex_);
  std::vector<Block> blocks;
  for (const auto& [address, block] : blocks_) blocks.push_back(block);
  return blocks;
}

std::size_t DeviceHeap::used_bytes(Kind kind, int device) {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& [address, block] : blocks_) {
    const bool counts = block.kind == kind && (device < 0 || block.device == device);
    bytes += counts ? block.size_bytes : 0;
  }
  return bytes;
}

void DeviceHeap::set_access(bool allowed) {
  const std::lock_guard lock(mutex_);
  accessible_ = allowed;
  for (const auto& [address, block] : blocks_) {
    if (block.kind != Kind::kDevice) continue;
    const Pages pages = pages_of(block);
    mprotect(pages.begin, pages.size_bytes, allowed ? PROT_READ | PROT_WRITE : PROT_NONE);
  }
}

}  // namespace motley::test
