// comm/executor/staging.h: memory and side streams that calls on device memory work in.
//
// One for each device that a rank uses and each kind of memory: pinned, through which such calls go
// to and from transports that move host memory; or the device's own, for transports that move that.
#pragma once

#include <algorithm>
#include <cstddef>

#include "comm/clock.h"
#include "comm/device.h"
#include "comm/transport/slots.h"

namespace motley {

// When to look again for what has been awaited since `since` and wakes nobody when it comes: after
// an eighth of that time, so that looking costs little and finds out in time.
inline TimePoint next_look(TimePoint now, TimePoint since) noexcept {
  return now + std::clamp<Duration>((now - since) / 8, std::chrono::microseconds(2),
                                    std::chrono::milliseconds(1));
}

class Staging {
 public:
  // Of the current device, on which slots are taken, too.
  explicit Staging(Memory kind) : device_(current_device()), slots_(kind) {}

  int device() const noexcept { return device_; }
  StreamRef to_host() const noexcept { return to_host_; }
  StreamRef to_device() const noexcept { return to_device_; }
  // What pieces of calls work in.
  Slots& slots() noexcept { return slots_; }

 private:
  int device_;
  Stream to_host_;
  Stream to_device_;
  Slots slots_;
};

}  // namespace motley
