// comm/transport/slots.h: pinned or device memory that calls and messages borrow.
//
// Slots are kept for the next ones, so that a call allocates nothing once one like it has run. A
// slot that work on a device still uses when it comes back, as that of a call which was given up
// may be, is lent again only when that work is done.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/device.h"
#include "comm/view.h"

namespace motley {

class Slots {
 public:
  struct Slot {
    Slot(Memory kind, std::size_t bytes)
        : pinned(kind == Memory::kHost ? bytes : 0), device(kind == Memory::kDevice ? bytes : 0) {}
    std::byte* data() const noexcept {
      return device.size_bytes() != 0 ? device.view(0, DType::kInt8).data : pinned.data();
    }
    std::size_t size_bytes() const noexcept { return pinned.size_bytes() + device.size_bytes(); }

    PinnedBuffer pinned;
    DeviceBuffer device;
    Event copied;  // the last work in a stream that uses it
    bool lent = false;
  };

  // A borrowed slot; goes back when destroyed, which must be before its Slots. Or none.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept : slot_(std::exchange(other.slot_, nullptr)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(slot_, other.slot_);
      return *this;
    }
    ~Lease() {
      if (slot_ != nullptr) slot_->lent = false;
    }

    explicit operator bool() const noexcept { return slot_ != nullptr; }
    Slot* operator->() const noexcept { return slot_; }

   private:
    friend class Slots;
    explicit Lease(Slot& slot) : slot_(&slot) { slot.lent = true; }

    Slot* slot_ = nullptr;
  };

  // Pinned, or of the device that is current where slots are taken.
  explicit Slots(Memory kind) noexcept : kind_(kind) {}
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // A slot of at least `bytes`: a free one, else a fresh one; none if all slots together would then
  // have more than `limit` bytes.
  Lease take_within(std::size_t limit, std::size_t bytes);
  // The same, but one in any case.
  Lease take(std::size_t limit, std::size_t bytes);
  // All slots that there are, lent or not.
  std::size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  Lease take_free(std::size_t size);
  Lease make(std::size_t size);

  Memory kind_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t size_bytes_ = 0;
};

}  // namespace motley
