#include "runtime/launch/exit_status.h"

#include <fmt/format.h>

#include <cstring>

namespace motley::runtime {

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  return abbreviation != nullptr ? fmt::format("SIG{}", abbreviation)
                                 : fmt::format("signal {}", signal);
}

std::string describe(const ExitStatus& status) {
  return status.signal != 0 ? fmt::format("was killed by {}", signal_name(status.signal))
                            : fmt::format("exited with code {}", status.code);
}

}  // namespace motley::runtime
