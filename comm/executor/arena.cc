#include "comm/executor/arena.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>

namespace motley {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr std::size_t kSmallest = 4096;

}  // namespace

Arena::~Arena() {
  assert(free_.size() == blocks_);  // none is lent
  for (const Bytes memory : free_) ::operator delete(memory.data(), kAlignment);
}

Arena::Block Arena::take(std::size_t bytes) {
  if (bytes == 0) return {};
  // Powers of two, so that calls of different sizes share blocks.
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallest));
  for (Bytes& memory : free_) {
    if (memory.size() != size) continue;
    const Bytes found = std::exchange(memory, free_.back());
    free_.pop_back();
    return {*this, found};
  }
  free_.reserve(blocks_ + 1);  // giving back allocates nothing
  auto* data = static_cast<std::byte*>(::operator new(size, kAlignment));
  ++blocks_;
  size_bytes_ += size;
  return {*this, Bytes(data, size)};
}

void Arena::give_back(Bytes memory) noexcept { free_.push_back(memory); }

}  // namespace motley
