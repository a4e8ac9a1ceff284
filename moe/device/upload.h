// moe/device/upload.h: small tables from the host to a device, in stream order, while the host goes
// on: each stays where it is until the stream has got behind what uses it.
#pragma once

#include <cstring>
#include <deque>
#include <span>

#include "comm/device.h"

namespace motley::moe {

class Uploads {
 public:
  // Copies `bytes` into device memory at a multiple of 256 bytes.
  const std::byte* put(std::span<const std::byte> bytes, StreamRef stream) {
    Place& place = free_place(bytes.size());
    std::memcpy(place.host.data(), bytes.data(), bytes.size());
    const View device = place.device.view(bytes.size(), DType::kInt8);
    copy(device, place.host.view(bytes.size(), DType::kInt8), stream);
    place.taken = true;
    return device.data;
  }
  // What was put since the last such call is used by what is in `stream` now, and by nothing later.
  void used(StreamRef stream) {
    for (Place& place : places_) {
      if (!place.taken) continue;
      place.used.record(stream);
      place.taken = false;
    }
  }

 private:
  struct Place {
    explicit Place(std::size_t bytes) : host(bytes), device(bytes) {}
    PinnedBuffer host;
    DeviceBuffer device;
    Event used;
    bool taken = false;
  };

  Place& free_place(std::size_t bytes) {
    for (Place& place : places_) {
      if (!place.taken && place.device.size_bytes() >= bytes && place.used.done()) return place;
    }
    return places_.emplace_back(bytes < kLeastBytes ? kLeastBytes : 2 * bytes);
  }

  static constexpr std::size_t kLeastBytes = 16 * 1024;
  std::deque<Place> places_;
};

}  // namespace motley::moe
