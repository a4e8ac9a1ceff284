// comm/transport/bell.h: wakes a thread that sleeps in poll(2): readable once it was rung.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/error.h"

namespace motley {

class Bell {
 public:
  Bell() : descriptor_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (descriptor_ < 0) throw_errno("create an eventfd");
  }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  ~Bell() { close(descriptor_); }
  int descriptor() const noexcept { return descriptor_; }
  void ring() noexcept { eventfd_write(descriptor_, 1); }
  void hush() noexcept {
    eventfd_t rings = 0;
    eventfd_read(descriptor_, &rings);
  }

 private:
  int descriptor_;
};

}  // namespace motley
