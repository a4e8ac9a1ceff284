// Processes of a test: forked while the test has no thread, killed and reaped whatever happens.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "comm/controller.h"
#include "comm/error.h"

namespace motley::test {

class Forked {
 public:
  // Runs `body` in a child, which exits with 0 when it returns and with 1 when it throws.
  explicit Forked(const std::function<void()>& body) : pid_(fork()) {
    if (pid_ < 0) throw_errno("fork");
    if (pid_ > 0) return;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child %d: %s\n", getpid(), error.what());
      _exit(1);
    }
    _exit(0);
  }
  Forked(const Forked&) = delete;
  Forked& operator=(const Forked&) = delete;
  ~Forked() {
    if (ended_) return;
    signal(SIGKILL);
    wait();
  }

  int pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  // Whether it has; does not wait.
  bool ended() {
    if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  // As waitpid() gives it: 0 if all went well.
  int wait() {
    if (!ended_) waitpid(pid_, &status_, 0);
    ended_ = true;
    return status_;
  }

 private:
  int pid_;
  int status_ = 0;
  bool ended_ = false;
};

// A controller as a process of its own. A test that started it as a thread could not fork any more.
class ForkedController {
 public:
  explicit ForkedController(const ControllerOptions& options)
      : process_([&] {
          const ControllerServer server(options);
          [[maybe_unused]] const auto written =
              write(pipe_.ends[1], server.address().c_str(), server.address().size() + 1);
          while (true) pause();
        }) {
    char text[64] = {};
    [[maybe_unused]] const auto taken = read(pipe_.ends[0], text, sizeof text - 1);
    address_ = text;
  }
  const std::string& address() const { return address_; }
  void signal(int number) const { process_.signal(number); }

 private:
  struct Pipe {
    Pipe() {
      if (pipe(ends) != 0) throw_errno("open a pipe");
    }
    ~Pipe() {
      close(ends[0]);
      close(ends[1]);
    }
    int ends[2];
  };
  Pipe pipe_;
  Forked process_;
  std::string address_;
};

}  // namespace motley::test
