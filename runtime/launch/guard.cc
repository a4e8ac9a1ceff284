#include "runtime/launch/guard.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <vector>

#include "comm/error.h"

namespace motley::runtime {
namespace {

// In the child. `groups` has its memory already, since after a fork none should be asked for.
[[noreturn]] void guard(int orders, std::vector<pid_t>& groups) {
  setpgid(0, 0);  // what is typed at a terminal is not for it
  prctl(PR_SET_NAME, "motley-guard");
  pid_t order = 0;
  while (true) {
    const ssize_t got = read(orders, &order, sizeof order);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof order) break;
    if (order < 0) std::erase(groups, -order);
    if (order > 0 && groups.size() < groups.capacity()) groups.push_back(order);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

Guard::Guard(int size) {
  Pipe pipe = make_pipe();
  std::vector<pid_t> groups;
  groups.reserve(static_cast<std::size_t>(size));
  pid_ = fork();
  if (pid_ < 0) throw_errno("motley-run: start the guard of the ranks");
  if (pid_ == 0) {
    pipe.write.close();
    guard(pipe.read.get(), groups);
  }
  orders_ = std::move(pipe.write);
}

Guard::~Guard() {
  orders_.close();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Guard::tell(pid_t order) noexcept {
  // Shorter than PIPE_BUF: all or nothing. Without its guard the job goes on.
  [[maybe_unused]] const auto written = write(orders_.get(), &order, sizeof order);
}

}  // namespace motley::runtime
