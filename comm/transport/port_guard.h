// comm/transport/port_guard.h: makes sure that a range of TCP ports has a free one, for libraries
// that look for one themselves and would look for ever.
#pragma once

#include "comm/bootstrap/endpoint.h"
#include "comm/clock.h"

namespace motley {

// While one is held, no other process of this host that asks can take the port. Not needed, and
// does nothing, for a range of any ports.
class PortGuard {
 public:
  // Throws kIo, naming the range, if no port of it is free, or if others hold the guard for so
  // long.
  PortGuard(const PortRange& range, TimePoint deadline);
  PortGuard(const PortGuard&) = delete;
  PortGuard& operator=(const PortGuard&) = delete;
  ~PortGuard();

 private:
  int lock_ = -1;
};

}  // namespace motley
