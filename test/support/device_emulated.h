// test/support/device_emulated.h: devices without a device. comm/device.h over the host's memory,
// for tests that link motley_device_emulated, and what such tests may ask beyond it.
//
// Streams are queues: their work is done in order but late, so that a missing wait shows. Nothing
// is done when it is put into a stream; synchronize() does what its stream needs and no more, and
// each look at an event does at most one piece of work of any stream, drawn by a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "comm/device.h"

namespace motley::test {

// What the host may do with device memory. kForbidden: its pages have no access while no device
// works, so that host code that touches them is a segmentation fault at that place.
enum class HostAccess { kAllowed, kForbidden };

// By the transport of a test: UCX moves the memory of emulated devices itself, as a host.
inline HostAccess host_access_over(std::string_view transport) noexcept {
  return transport == "ucx" ? HostAccess::kAllowed : HostAccess::kForbidden;
}

struct EmulatedDevices {
  int count = 8;
  std::size_t memory_bytes = std::size_t{16} << 30;  // of each
  std::uint64_t seed = 1;
  HostAccess host_access = HostAccess::kAllowed;
};

// Replaces the devices. No stream, event or buffer may be alive.
void emulate(const EmulatedDevices& devices);

// Work that is neither a copy nor a kernel, in stream order. It is tried, on any thread that drives
// the devices and without locks held, until it returns true; what it throws is thrown by the next
// wait for the stream.
void enqueue(StreamRef stream, std::function<bool()> work);

// Owners that are alive, and their bytes.
struct DeviceUse {
  std::size_t streams = 0;
  std::size_t events = 0;
  std::size_t device_bytes = 0;
  std::size_t pinned_bytes = 0;
  std::size_t unfinished = 0;  // pieces of work
  friend bool operator==(const DeviceUse&, const DeviceUse&) = default;
};
DeviceUse device_use();

}  // namespace motley::test
