// The controller of a job as a child process: motley-controller, which hears of deaths on its
// standard input.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/process.h"

namespace motley::runtime {

class ControllerProcess {
 public:
  // Returns when it listens. `environment` holds the token. `standby_for`: the address of the one
  // whose place it is to take, if there is one. Throws kIo if it does not within a few seconds.
  ControllerProcess(const std::string& program, int size,
                    const std::vector<std::string>& environment,
                    const std::string& standby_for = "");

  // What the ranks are given as MOTLEY_CONTROLLER, that of a standby behind that of the first.
  const std::string& address() const noexcept { return address_; }
  // `rank` has ended, as `why` says: the other ranks are to know, unless it was in good order.
  void report_lost(int rank, const std::string& why);
  // How it ended, once, if it has.
  std::optional<ExitStatus> reap() { return process_->reap(); }

 private:
  std::string address_;
  Fd orders_;
  std::optional<Process> process_;
};

}  // namespace motley::runtime
