// test/support/exact_array.h: elements that fill their buffer of emulated device memory, wherever
// it begins: simt::checked() reports whatever touches a byte before or behind them.
#pragma once

#include <vector>

#include "test/support/device_world.h"

namespace motley::test {

template <class T>
class ExactArray {
 public:
  // `phase` elements behind a multiple of 256 bytes.
  explicit ExactArray(const std::vector<T>& values, std::size_t phase = 0)
      : buffer_(make(values.size() * sizeof(T), phase * sizeof(T))),
        view_(buffer_.view(values.size(), dtype_of<T>)) {
    motley::copy(view_, values, {});
    synchronize({});
  }

  View view() const noexcept { return view_; }

  // What is there now, everything before in `stream` done.
  std::vector<T> values(StreamRef stream) const {
    std::vector<T> values(view_.count);
    motley::copy(values, view_, stream);
    synchronize(stream);
    return values;
  }

 private:
  static DeviceBuffer make(std::size_t size_bytes, std::size_t phase_bytes) {
    DeviceHeap& heap = DeviceWorld::get().heap;
    heap.set_phase(phase_bytes);
    DeviceBuffer buffer(size_bytes);
    heap.set_phase(0);
    return buffer;
  }

  DeviceBuffer buffer_;
  View view_;
};

}  // namespace motley::test
