// comm/transport/device_messages.h: messages from device memory to device memory, which no host
// copies, of a transport that can move them.
//
// A message is owned: whoever holds it, this or the network, keeps its memory, so a call can be
// given up at any moment. Messages in device memory and others match in one order. All ranks of a
// transport have it or none does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/transport/slots.h"
#include "comm/transport/transport.h"

namespace motley {

struct DeviceMessage {
  Slots::Lease slot;     // of device memory; the message begins where it does
  std::size_t size = 0;  // bytes

  explicit operator bool() const noexcept { return static_cast<bool>(slot); }
  View bytes() const noexcept { return {slot->data(), size, DType::kInt8, Memory::kDevice}; }
};

class DeviceMessages {
 public:
  // On which all messages lie.
  virtual int device() const noexcept = 0;
  // Memory for a message of `size` bytes, not 0; that device being current.
  virtual DeviceMessage take(std::size_t size) = 0;
  // As Transport::post_send(). The message goes once the event of its slot is done.
  virtual bool post_send(int to, const Tag& tag, DeviceMessage message, Sink& sink,
                         std::uint32_t cookie) = 0;

 protected:
  ~DeviceMessages() = default;
};

}  // namespace motley
