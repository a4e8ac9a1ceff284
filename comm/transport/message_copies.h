// comm/transport/message_copies.h: host memory for messages that a network reads or writes.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <vector>

#include "comm/transport/device_messages.h"

namespace motley {

// A message's copy, which UCX reads, or writes when it is fetched, until it says that it is done. A
// slot of which it never says so is not used again.
class MessageCopies {
 public:
  struct Slot {
    std::vector<std::byte> bytes;
    MessageCopies* pool;
    DeviceMessage device;  // the rest of the message, if it is there
    // Of messages that are fetched.
    void* worker = nullptr;  // an Impl
    int from = -1;
    std::size_t size = 0;
  };

  Slot& take(std::size_t size) {
    ++in_use_;
    std::vector<Slot*>& free = free_[index(size)];
    if (free.empty()) {
      all_.push_back(std::make_unique<Slot>());
      Slot& slot = *all_.back();
      slot.bytes.resize(std::size_t{1} << index(size));
      slot.pool = this;
      free.reserve(all_.size());  // so that giving back does not allocate
      return slot;
    }
    Slot& slot = *free.back();
    free.pop_back();
    return slot;
  }
  void give_back(Slot& slot) {
    slot.device = {};
    free_[index(slot.bytes.size())].push_back(&slot);
    --in_use_;
  }
  std::size_t in_use() const noexcept { return in_use_; }

 private:
  static constexpr std::size_t kSmallest = 8;  // 256 bytes
  static std::size_t index(std::size_t size) {
    return std::max<std::size_t>(kSmallest, static_cast<std::size_t>(std::bit_width(size - 1)));
  }

  std::vector<std::unique_ptr<Slot>> all_;
  std::size_t in_use_ = 0;
  std::vector<Slot*> free_[64];  // by the logarithm of their size
};

}  // namespace motley
