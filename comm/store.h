// comm/store.h: the key-value store through which ranks find each other.
//
//   store.set("address/3", bytes);
//   std::string peer = store.get("address/5", clock.now() + seconds(60));   // waits for rank 5
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/clock.h"

namespace motley {

// Any thread may call; calls of one object run one after another.
class Store {
 public:
  virtual ~Store() = default;
  // Binds `key` to `value` (binary, at most 1 MiB); a second set replaces the first.
  virtual void set(std::string_view key, std::string_view value) = 0;
  // The value of `key`, waited for until `deadline`. Throws kTimeout, naming the key.
  virtual std::string get(std::string_view key, TimePoint deadline) = 0;
  // Adds to a counter that starts at 0; returns the new value.
  virtual std::int64_t add(std::string_view key, std::int64_t amount) = 0;
};

}  // namespace motley
