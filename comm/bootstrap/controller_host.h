// comm/bootstrap/controller_host.h: the controller inside rank 0, where nobody started one.
#pragma once

#include <string>
#include <vector>

#include "comm/controller.h"
#include "comm/options.h"

namespace motley {

class ControllerHost {
 public:
  // Listens as options.controller, interface and ports say, and writes the file if that is one. A
  // job without a token that meets by file gets a random one.
  ControllerHost(const Options& options, Clock& clock);
  ControllerHost(const ControllerHost&) = delete;
  ControllerHost& operator=(const ControllerHost&) = delete;
  // Serves on until all other ranks have left or are dead: without it, no rank would learn of the
  // death of another.
  ~ControllerHost();

  const std::string& address() const noexcept { return address_; }  // for this process
  const std::string& token() const noexcept { return token_; }

 private:
  std::string path_;  // of the file; empty: none
  std::string token_;
  ControllerServer server_;
  std::string address_;
};

}  // namespace motley
