#include "test/support/program_run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>

#include "comm/error.h"

namespace motley {

ProgramRun::ProgramRun(std::vector<std::string> words, const std::string& input) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int in[2];
  int out[2];
  int error[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(error, O_CLOEXEC) != 0) {
    throw_errno("create pipes");
  }
  pid_ = fork();
  if (pid_ < 0) throw_errno("fork");
  if (pid_ == 0) {
    // As from a terminal, also where the test itself runs in the background and ignores them.
    for (const int signal : {SIGHUP, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(error[1], STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  [[maybe_unused]] const auto written = write(in[1], input.data(), input.size());
  for (const int fd : {in[0], in[1], out[1], error[1]}) close(fd);
  streams_[0] = out[0];
  streams_[1] = error[0];
}

ProgramRun::~ProgramRun() {
  for (const int fd : streams_) {
    if (fd >= 0) close(fd);
  }
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ProgramRun::signal(int signal) const { kill(pid_, signal); }

std::string ProgramRun::await(const std::string& text, Duration limit) {
  const TimePoint deadline = Clock::real().now() + limit;
  while (true) {
    for (const std::string& all : texts_) {
      const std::size_t begin = all.find(text);
      const std::size_t end = begin == all.npos ? begin : all.find('\n', begin);
      if (end != all.npos) return all.substr(begin + text.size(), end - begin - text.size());
    }
    if (!read_more(deadline)) {
      throw Error(ErrorCode::kTimeout, fmt::format("\"{}\" never came. Output:\n{}Errors:\n{}",
                                                   text, texts_[0], texts_[1]));
    }
  }
}

ProgramRun::Result ProgramRun::wait(Duration limit) {
  const TimePoint deadline = Clock::real().now() + limit;
  while (read_more(deadline)) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .out = texts_[0],
          .error = texts_[1]};
}

bool ProgramRun::read_more(TimePoint deadline) {
  if (streams_[0] < 0 && streams_[1] < 0) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::real().now());
  pollfd items[2] = {{.fd = streams_[0], .events = POLLIN}, {.fd = streams_[1], .events = POLLIN}};
  if (left.count() <= 0 || poll(items, 2, static_cast<int>(left.count())) == 0) {
    throw Error(ErrorCode::kTimeout, fmt::format("process {} still runs. Output:\n{}Errors:\n{}",
                                                 pid_, texts_[0], texts_[1]));
  }
  for (int i = 0; i < 2; ++i) {
    if (items[i].revents == 0) continue;
    char bytes[16 << 10];
    const ssize_t got = read(streams_[i], bytes, sizeof bytes);
    if (got > 0) {
      texts_[i].append(bytes, static_cast<std::size_t>(got));
    } else if (got == 0) {
      close(streams_[i]);
      streams_[i] = -1;
    }
  }
  return true;
}

}  // namespace motley
