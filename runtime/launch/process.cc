#include "runtime/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "comm/error.h"

namespace motley::runtime {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (const std::string& each : strings) result.push_back(const_cast<char*>(each.c_str()));
  result.push_back(nullptr);
  return result;
}

bool is_executable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

// Signals as a program expects to find them.
void restore_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
}

// The soft limit alone; the hard one is the system's.
void limit_open_files(rlim_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = count;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// dup2 leaves close-on-exec set where source and target are the same.
bool redirect(int from, int to) {
  return from == to ? fcntl(to, F_SETFD, 0) == 0 : dup2(from, to) == to;
}

// In the child, between fork and exec: only calls that are safe there. Never returns.
[[noreturn]] void become(const SpawnOptions& options, char* const* arguments,
                         char* const* environment, pid_t parent, int report) {
  setpgid(0, 0);
  const bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && redirect(options.in, 0) &&
                     redirect(options.out, 1) && redirect(options.error, 2);
  if (getppid() != parent) _exit(1);  // it died before prctl could tell us
  if (ready) {
    restore_signals();
    if (options.open_files != 0) limit_open_files(options.open_files);
    execve(options.program.c_str(), arguments, environment);
  }
  const int reason = errno;
  [[maybe_unused]] const auto written = write(report, &reason, sizeof reason);
  _exit(127);
}

}  // namespace

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw_errno("create a pipe");
  return {Fd(ends[0]), Fd(ends[1])};
}

void set_nonblocking(const Fd& fd) {
  const int flags = fcntl(fd.get(), F_GETFL);
  if (flags < 0 || fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    throw_errno("make a pipe non-blocking");
  }
}

rlim_t allow_open_files(rlim_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    throw_errno("motley-run: read the limit of open files");
  if (limit.rlim_max < count) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("motley-run: so many ranks need {} open files, but the limit is {}. "
                            "Raise it with ulimit -n, or start fewer ranks.",
                            count, limit.rlim_max));
  }
  if (limit.rlim_cur < count) limit_open_files(count);
  return limit.rlim_cur;
}

Process::Process(const SpawnOptions& options) {
  const std::vector<char*> arguments = pointers(options.arguments);
  const std::vector<char*> environment = pointers(options.environment);
  Pipe report = make_pipe();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    pid_ = 0;
    throw_errno(fmt::format("motley-run: start {}", options.program));
  }
  if (pid_ == 0) {
    become(options, arguments.data(), environment.data(), parent, report.write.get());
  }
  setpgid(pid_, pid_);  // whichever of us comes first; fails harmlessly after exec
  report.write.close();
  int reason = 0;
  ssize_t got = 0;
  do {
    got = read(report.read.get(), &reason, sizeof reason);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof reason) {
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    errno = reason;
    throw_errno(fmt::format("motley-run: start {}", options.program));
  }
}

Process::~Process() {
  if (pid_ == 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);  // it may have left its group
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Process::signal(int signal) const noexcept {
  if (pid_ != 0) kill(-pid_, signal);
}

std::optional<ExitStatus> Process::reap() {
  siginfo_t info{};
  if (pid_ == 0 ||
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  kill(-pid_, SIGKILL);  // before it is reaped, while its number cannot be another's
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
  if (info.si_code == CLD_EXITED) return ExitStatus{.code = info.si_status};
  return ExitStatus{.signal = info.si_status};
}

std::string find_program(const std::string& name, std::string_view path) {
  if (name.find('/') != name.npos) return is_executable(name) ? name : "";
  while (!name.empty() && !path.empty()) {
    const std::size_t end = std::min(path.find(':'), path.size());
    const std::string folder(end == 0 ? "." : path.substr(0, end));
    if (is_executable(folder + "/" + name)) return folder + "/" + name;
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return "";
}

}  // namespace motley::runtime
