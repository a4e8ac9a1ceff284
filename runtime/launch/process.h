// Child processes and the descriptors that lead to them. Nothing here is inherited by a child but
// its three standard streams.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/launch/exit_status.h"

namespace motley::runtime {

// Owns a file descriptor; -1: none.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();

  int get() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  void close() { *this = Fd(); }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read;
  Fd write;
};

// Closed on exec at both ends. Throws kIo.
Pipe make_pipe();
// Reads and writes at `fd` return at once. Throws kIo.
void set_nonblocking(const Fd& fd);

struct SpawnOptions {
  std::string program;                   // a path
  std::vector<std::string> arguments;    // the first is the program's name, as it shall see it
  std::vector<std::string> environment;  // "NAME=value"
  int in = 0;                            // what become its standard streams
  int out = 1;
  int error = 2;
  rlim_t open_files = 0;  // how many it may have; 0: as many as we
};

// Lets this process have `count` descriptors open and returns how many it could before. Throws
// kInvalid, with both numbers, if the system's limit is lower.
rlim_t allow_open_files(rlim_t count);

// A child in a process group of its own, killed by the system when the thread that started it ends.
// Killed and reaped, with its group, when destroyed.
class Process {
 public:
  // Returns when the program runs. Throws kIo, with the reason, if it cannot be.
  explicit Process(const SpawnOptions& options);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~Process();

  pid_t pid() const noexcept { return pid_; }
  // To all of its group. Does nothing once it has been reaped.
  void signal(int signal) const noexcept;
  // How it ended, once; nothing while it runs. Kills what is left of its group.
  std::optional<ExitStatus> reap();

 private:
  pid_t pid_ = 0;  // 0: reaped
};

// The path of a program: `name` itself if it has a '/', else the first match in `path`, which is
// written like PATH. Empty if there is none that can be executed.
std::string find_program(const std::string& name, std::string_view path);

}  // namespace motley::runtime
