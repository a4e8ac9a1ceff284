// How a process ended.
#pragma once

#include <string>

namespace motley::runtime {

struct ExitStatus {
  int code = 0;    // what it returned, if no signal ended it
  int signal = 0;  // what ended it; 0: nothing did

  bool good() const noexcept { return code == 0 && signal == 0; }
  // As a shell sees it: 128 + signal for one that a signal ended.
  int shell_code() const noexcept { return signal != 0 ? 128 + signal : code; }
};

// "SIGKILL", or "signal 40" for one without a name.
std::string signal_name(int signal);
// "was killed by SIGKILL" or "exited with code 3".
std::string describe(const ExitStatus& status);

}  // namespace motley::runtime
