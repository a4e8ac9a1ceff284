// test/support/buffer.h: elements in host or device memory, so that one test body covers both.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/device.h"
#include "comm/view.h"

namespace motley::test {

template <class T>
class Buffer {
 public:
  // Nobody waits for the copy to the device: calls come after it in the default stream. Before
  // calls in another one synchronize that.
  Buffer(Memory memory, std::vector<T> elements) : elements_(std::move(elements)) {
    if (memory == Memory::kHost) return;
    device_.emplace(elements_.size() * sizeof(T));
    motley::copy(view(), ConstView(elements_), StreamRef{});
  }

  View view() noexcept {
    return device_ ? device_->view(elements_.size(), dtype_of<T>) : View(elements_);
  }
  operator View() noexcept { return view(); }  // NOLINT: as a vector is one
  operator ConstView() const noexcept {        // NOLINT
    return const_cast<Buffer*>(this)->view();
  }
  // Block `index` of those of n elements.
  View block(int index, std::size_t n) {
    return view().slice(static_cast<std::size_t>(index) * n, n);
  }
  // What it holds now.
  const std::vector<T>& read() {
    if (device_) {
      motley::copy(View(elements_), view(), StreamRef{});
      synchronize(StreamRef{});
    }
    return elements_;
  }

 private:
  std::vector<T> elements_;  // while the copy is under way not to be touched
  std::optional<DeviceBuffer> device_;
};

inline std::string text(Memory memory) { return memory == Memory::kHost ? "host" : "device"; }

}  // namespace motley::test
