// comm/controller.h: runs the controller of a job, through which its ranks find each other, learn
// who is dead and are put into groups.
//
//   ControllerServer controller({.size = 4, .token = token});
//   setenv("MOTLEY_CONTROLLER", controller.address().c_str(), 1);   // for the ranks to be started
//
// It has a thread of its own, holds no model data and admits only who knows the job's token.
// `motley-controller` is this class as a program.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/clock.h"

namespace motley {

// A secret for a job: 128 random bits of the system's as hexadecimal digits.
std::string make_token();

struct ControllerOptions {
  std::string bind = "tcp://127.0.0.1:0";  // where to listen; port 0: one that the kernel chooses
  int size = 1;                            // number of ranks of the job
  std::string token;              // secret of the job; anybody is admitted who has the same
  Duration lease = seconds(1.5);  // silence after which a rank is dead
  std::string ports;              // if `bind` has port 0: "29600-29699", one of which it shall be
};

class ControllerServer {
 public:
  // Listens when it returns. Throws kInvalid on a bad option; kIo, with the reason, if it cannot
  // bind.
  explicit ControllerServer(const ControllerOptions& options, Clock& clock = Clock::real());
  ControllerServer(ControllerServer&&) noexcept;
  ControllerServer& operator=(ControllerServer&&) noexcept;
  ~ControllerServer();  // ends at once: ranks that are left find it silent

  // What ranks are given as Options::controller: "tcp://10.0.0.1:40123". Where it listens at all
  // addresses of its host: one that other hosts are likely to reach.
  const std::string& address() const noexcept;

  // Messages refused so far: of strangers, or no messages at all. Any thread.
  std::uint64_t refused() const noexcept;

  // `rank` is known to be dead (its parent saw it end): all learn of it at once. A rank that has
  // ended in good order is not dead. Any thread.
  void report_lost(int rank, const std::string& why);
  // Returns once every rank that has joined has left again or is dead: at once if none ever joined.
  void wait_until_left();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
