// test/support/device_array.h: elements in device memory, at any place relative to 16 bytes,
// between bytes that nobody may touch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/device.h"

namespace motley::test {

// Whether tests of more than 2^31 elements can run: 20 GiB, more than emulated devices have.
inline bool device_has_room() { return device_memory().free >= std::size_t{20} << 30; }

template <class T>
class DeviceArray {
 public:
  // `values` on the device, `phase` elements behind a multiple of 256 bytes.
  explicit DeviceArray(const std::vector<T>& values, std::size_t phase = 0)
      : front_(kGuardBytes + phase * sizeof(T)),
        size_bytes_(values.size() * sizeof(T)),
        bytes_(front_ + size_bytes_ + kGuardBytes, kGuard),
        buffer_(bytes_.size()),
        view_(buffer_.view(bytes_.size(), DType::kInt8).data + front_, values.size(), dtype_of<T>,
              Memory::kDevice) {
    const auto from = std::as_bytes(std::span(values));
    std::copy(from.begin(), from.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(front_));
    motley::copy(whole(), host(), stream_);
    synchronize(stream_);
  }

  View view() const noexcept { return view_; }

  // What is there now, everything before in `stream` done.
  std::vector<T> values(StreamRef stream) {
    motley::copy(host(), whole(), stream);
    synchronize(stream);
    std::vector<T> values(view_.count);
    if (size_bytes_ != 0)
      std::memcpy(static_cast<void*>(values.data()), bytes_.data() + front_, size_bytes_);
    return values;
  }

  // Whether nothing beside the elements has changed, as values() saw it.
  bool guarded() const {
    const auto untouched = [](std::byte b) { return b == kGuard; };
    return std::all_of(bytes_.data(), bytes_.data() + front_, untouched) &&
           std::all_of(bytes_.data() + front_ + size_bytes_, bytes_.data() + bytes_.size(),
                       untouched);
  }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static constexpr std::byte kGuard{0xa5};

  View whole() const noexcept { return buffer_.view(bytes_.size(), DType::kInt8); }
  View host() noexcept { return {bytes_.data(), bytes_.size(), DType::kInt8}; }

  Stream stream_;
  std::size_t front_;
  std::size_t size_bytes_;
  std::vector<std::byte> bytes_;
  DeviceBuffer buffer_;
  View view_;
};

}  // namespace motley::test
