#include "comm/transport/slots.h"

#include <algorithm>
#include <bit>

namespace motley {
namespace {

// Powers of two, so that calls of different sizes share slots.
std::size_t size_of(std::size_t bytes) {
  constexpr std::size_t kSmallest = 4096;
  return std::bit_ceil(std::max(bytes, kSmallest));
}

}  // namespace

Slots::Lease Slots::take_within(std::size_t limit, std::size_t bytes) {
  const std::size_t size = size_of(bytes);
  Lease lease = take_free(size);
  if (lease) return lease;
  // Slots of sizes that are not asked for any more make room.
  for (auto slot = slots_.begin(); slot != slots_.end() && size_bytes_ + size > limit;) {
    const bool keeps = (*slot)->lent || !(*slot)->copied.done();
    if (!keeps) size_bytes_ -= (*slot)->size_bytes();
    slot = keeps ? slot + 1 : slots_.erase(slot);
  }
  return size_bytes_ + size > limit ? Lease() : make(size);
}

Slots::Lease Slots::take(std::size_t limit, std::size_t bytes) {
  Lease lease = take_within(limit, bytes);
  return lease ? std::move(lease) : make(size_of(bytes));
}

Slots::Lease Slots::take_free(std::size_t size) {
  for (const auto& slot : slots_) {
    if (slot->lent || slot->size_bytes() != size || !slot->copied.done()) continue;
    return Lease(*slot);
  }
  return {};
}

Slots::Lease Slots::make(std::size_t size) {
  slots_.push_back(std::make_unique<Slot>(kind_, size));
  size_bytes_ += size;
  return Lease(*slots_.back());
}

}  // namespace motley
