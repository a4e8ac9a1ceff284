// comm/executor/staging.h: pinned memory and side streams, through which calls on device memory go
// to and from transports that move host memory.
//
// One for each device that a rank uses. Slots are kept for the next calls, so that a call allocates
// nothing once one like it has run. A slot whose copy is still under way when it comes back, as
// that of a call which was given up may be, is lent again only when the copy is done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "comm/clock.h"
#include "comm/device.h"

namespace motley {

// When to look again for what has been awaited since `since` and wakes nobody when it comes: after
// an eighth of that time, so that looking costs little and finds out in time.
inline TimePoint next_look(TimePoint now, TimePoint since) noexcept {
  return now + std::clamp<Duration>((now - since) / 8, std::chrono::microseconds(2),
                                    std::chrono::milliseconds(1));
}

class Staging {
 public:
  // What one piece of a call works in.
  struct Slot {
    explicit Slot(std::size_t bytes) : memory(bytes) {}
    PinnedBuffer memory;
    Event copied;  // the last copy to or from it
    bool lent = false;
  };

  // A borrowed slot; goes back when destroyed, which must be before its Staging. Or none.
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
    friend class Staging;
    explicit Lease(Slot& slot) : slot_(&slot) { slot.lent = true; }

    Slot* slot_ = nullptr;
  };

  // Of the current device, on which take() is called, too.
  Staging() : device_(current_device()) {}
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  int device() const noexcept { return device_; }
  StreamRef to_host() const noexcept { return to_host_; }
  StreamRef to_device() const noexcept { return to_device_; }

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

  int device_;
  Stream to_host_;
  Stream to_device_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::size_t size_bytes_ = 0;
};

}  // namespace motley
