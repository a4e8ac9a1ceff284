// comm/controller.h: runs the controller of a job, through which its ranks find each other, learn
// who is dead and are put into groups.
//
//   ControllerServer controller({.size = 4, .token = token});
//   setenv("MOTLEY_CONTROLLER", controller.address().c_str(), 1);   // for the ranks to be started
//
// It has a thread of its own, holds no model data and admits only who knows the job's token.
// `motley-controller` is this class as a program.
//
// A standby takes its place when it dies, and knows from the ranks what it knew:
//
//   ControllerServer standby({.size = 4, .token = token, .standby_for = {controller.address()}});
//   MOTLEY_CONTROLLER="tcp://first:4000,tcp://standby:4000"       // for the ranks, in this order
//
// It serves once the first has not answered it for a lease, in an epoch of its own above that of
// the first. Ranks try the next of their list when theirs has ended or is silent for a lease, and
// drop what controllers of earlier epochs say. A first one that was only stopped, or cut off, is
// told by the standby that its time is over as soon as it can be reached, and ends; if no rank has
// come to the standby by then, that stands by again. While the network is parted, both may serve,
// each the ranks that reach it and not the other: each takes the rest for dead, and who comes back
// to the later epoch is fenced if it was. So at most one part of a job goes on as this job. Where
// all before a standby are gone already when it starts, it does not know of a job, and fails.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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
  // The controllers before this one: "tcp://host:port", all that are to serve rather than it.
  std::vector<std::string> standby_for;
  Duration first_timeout = seconds(30);  // for one of them to answer
  // Called on the thread of the controller when it has ended because another serves. May be empty.
  std::function<void(const std::string& why)> on_end;
};

class ControllerServer {
 public:
  // Listens when it returns; a standby has had an answer then from one that serves. Throws kInvalid
  // on a bad option, and where two stand by for each other; kTimeout if none of those before a
  // standby answers; kIo, with the reason, if it cannot bind.
  explicit ControllerServer(const ControllerOptions& options, Clock& clock = Clock::real());
  ControllerServer(ControllerServer&&) noexcept;
  ControllerServer& operator=(ControllerServer&&) noexcept;
  ~ControllerServer();  // ends at once: ranks that are left find it silent

  // What ranks are given as Options::controller: "tcp://10.0.0.1:40123". Where it listens at all
  // addresses of its host: one that other hosts are likely to reach.
  const std::string& address() const noexcept;

  // Whether ranks are served: a standby does not while another does. Any thread.
  bool serves() const noexcept;

  // Messages refused so far: of strangers, or no messages at all. Any thread.
  std::uint64_t refused() const noexcept;

  // `rank` is known to be dead (its parent saw it end): all learn of it at once. A rank that has
  // ended in good order is not dead. A standby does not keep it: ranks will tell. Any thread.
  void report_lost(int rank, const std::string& why);
  // Returns once every rank that has joined has left again or is dead: at once if none ever joined.
  void wait_until_left();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
