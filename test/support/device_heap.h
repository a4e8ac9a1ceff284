// test/support/device_heap.h: the memory of emulated devices: pages of the host that are known by
// their addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace motley::test {

class DeviceHeap {
 public:
  enum class Kind { kDevice, kPinned };
  struct Block {
    std::byte* data = nullptr;
    std::size_t size_bytes = 0;
    Kind kind = Kind::kDevice;
    int device = 0;
  };

  // Filled with a pattern that is no small number in any type. nullptr if the device has `limit`
  // bytes and fewer than these are free.
  void* allocate(std::size_t size_bytes, Kind kind, int device, std::size_t limit);
  // Where the next blocks begin: so many bytes behind a page's begin, fewer than a page.
  void set_phase(std::size_t bytes);
  // `data` as allocate() gave it; its addresses are never used again.
  Block release(void* data);
  // The block whose pages hold `data`; so its end may lie before it.
  std::optional<Block> find(const void* data);
  std::vector<Block> all();                       // by address
  std::size_t used_bytes(Kind kind, int device);  // device -1: of all
  // Takes all access to device memory from everybody, or gives it back.
  void set_access(bool allowed);

 private:
  std::mutex mutex_;
  std::map<std::uintptr_t, Block> blocks_;
  std::size_t phase_ = 0;
  bool accessible_ = true;
};

}  // namespace motley::test
