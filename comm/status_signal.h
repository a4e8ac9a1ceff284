// comm/status_signal.h: says what a rank is doing when its process gets a signal, and lets it go
// on.
//
//   Communicator comm = Communicator::join(Options::from_environment());
//   StatusSignal status(comm, [](const std::string& text) { std::fputs(text.c_str(), stderr); });
//
// `kill -USR1` then prints this rank's latest calls and where all others are; motley-run passes the
// signal on to all its ranks. With Options::dump one of them also has the last calls of every rank
// written to a file. The library installs no handler unless one of these is made.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>

namespace motley {

class Communicator;

class StatusSignal {
 public:
  // Handles `signal` from now on. `print` is called on a thread of this object's own, with
  // Communicator::status(). `comm` outlives this object and is not moved meanwhile. One at a time
  // in a process: throws kInvalid if there is another.
  StatusSignal(const Communicator& comm, std::function<void(const std::string&)> print,
               int signal = SIGUSR1);
  StatusSignal(const StatusSignal&) = delete;
  StatusSignal& operator=(const StatusSignal&) = delete;
  ~StatusSignal();  // what handled the signal before does so again

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley
