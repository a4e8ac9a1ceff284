// Kills process groups if this process ends without having said that they are over, as when it is
// itself killed. The system kills the ranks then (see Process), but not what the ranks have
// started.
#pragma once

#include <sys/types.h>

#include "runtime/launch/process.h"

namespace motley::runtime {

// A child process that waits for the end of a pipe of ours. One thread.
class Guard {
 public:
  // For up to `size` groups at a time. Throws kIo.
  explicit Guard(int size);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();  // kills the groups that are still watched

  void watch(pid_t group) noexcept { tell(group); }
  void forget(pid_t group) noexcept { tell(-group); }

 private:
  void tell(pid_t order) noexcept;

  Fd orders_;
  pid_t pid_ = 0;
};

}  // namespace motley::runtime
