// comm/control/wake.h: wakes a thread that polls file descriptors.
#pragma once

#include "comm/clock.h"

namespace motley {

class Wake {
 public:
  Wake();  // throws kIo
  Wake(const Wake&) = delete;
  Wake& operator=(const Wake&) = delete;
  ~Wake();

  void signal() noexcept;  // any thread
  void clear() noexcept;
  // Waits for `longest` at most until `descriptor` is readable or there is a signal, which it
  // clears.
  void wait(int descriptor, Duration longest) noexcept;
  int fd() const noexcept { return fd_; }  // readable after signal(), until clear()

 private:
  int fd_;
};

}  // namespace motley
