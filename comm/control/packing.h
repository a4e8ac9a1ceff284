// comm/control/packing.h: numbers as bytes one after another, as parts of messages carry them.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace motley {

template <class T>
requires std::is_arithmetic_v<T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Every take() after the first that failed gives zero; ok() tells in the end.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  requires std::is_arithmetic_v<T> T take() {
    T value = 0;
    const std::string_view from = take_bytes(sizeof(T));
    if (ok_) std::memcpy(&value, from.data(), sizeof(T));
    return value;
  }
  std::string_view take_bytes(std::size_t size) {
    ok_ = ok_ && bytes_.size() >= size;
    if (!ok_) return {};
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  void refuse_unless(bool holds) { ok_ = ok_ && holds; }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace motley
