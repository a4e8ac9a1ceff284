#include "comm/cli/perf/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "comm/error.h"

namespace motley::perf {
namespace {

constexpr std::size_t kLastBytes = 600;  // of output, quoted in errors

// What all commands write, as a file without a name.
class Output {
 public:
  Output() : fd_(static_cast<int>(::memfd_create("output", MFD_CLOEXEC))) {
    if (fd_ < 0) throw_errno("motley-perf: create a file for the output of programs");
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { ::close(fd_); }

  int fd() const noexcept { return fd_; }
  std::string last() const {
    const off_t size = ::lseek(fd_, 0, SEEK_END);
    const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(kLastBytes));
    std::string text(kLastBytes, '\0');
    const ssize_t got = ::pread(fd_, text.data(), text.size(), begin);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text;
  }

 private:
  int fd_;
};

[[noreturn]] void become(const Command& command, int output, int nothing) {
  constexpr int kNotFound = 127;
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  for (const auto& [name, value] : command.environment) ::setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = command.words;
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execvp(pointers.front(), pointers.data());
  ::_exit(kNotFound);
}

class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid), fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), fd_(std::exchange(other.fd_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (fd_ >= 0) ::close(fd_);
  }

  // How it ended, empty for 0, or that it had not by `deadline`.
  std::string wait(TimePoint deadline) {
    pollfd item{.fd = fd_, .events = POLLIN, .revents = 0};
    while (true) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::real().now());
      if (left.count() <= 0) return "had not ended in time and was killed";
      const int ready = ::poll(&item, 1, static_cast<int>(std::min<long>(left.count(), 1'000'000)));
      if (ready > 0) break;
    }
    int status = 0;
    ::waitpid(pid_, &status, 0);
    ::kill(-std::exchange(pid_, 0), SIGKILL);  // what it may have left behind
    if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
    const int code = WEXITSTATUS(status);
    return code == 0 ? "" : fmt::format("ended with {}", code);
  }

 private:
  pid_t pid_;  // leader of a group of its own; 0: reaped
  int fd_;
};

}  // namespace

std::string run_all(const std::vector<Command>& commands, Duration limit) {
  const Output output;
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const TimePoint deadline = Clock::real().now() + limit;
  std::vector<Child> children;
  for (const Command& command : commands) {
    const pid_t pid = ::fork();
    if (pid < 0) throw_errno("motley-perf: start " + command.words.front());
    if (pid == 0) become(command, output.fd(), nothing);
    ::setpgid(pid, pid);  // whoever comes first, so that it has a group when it is killed
    children.emplace_back(pid);
  }
  ::close(nothing);
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::string how = children[i].wait(deadline);
    if (how.empty()) continue;
    return fmt::format("{} {}: {}", commands[i].words.front(), how, output.last());
  }
  return "";
}

}  // namespace motley::perf
