#include "test/support/net_hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "comm/error.h"

namespace motley::test {
namespace {

constexpr double kTimerHz = 250;          // a rate limit sends at least so often
constexpr double kLeastBurst = 64 << 10;  // bytes; one segment as the kernel hands it over

// A process in a network namespace of its own that does nothing.
pid_t keep_namespace() {
  int ready[2];
  if (pipe(ready) != 0) throw_errno("make a pipe");
  const pid_t pid = fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool done = unshare(CLONE_NEWNET) == 0 && write(ready[1], "x", 1) == 1;
    close(ready[0]);
    close(ready[1]);
    while (done) pause();
    _exit(1);
  }
  char byte = 0;
  close(ready[1]);
  const bool there = read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  if (there) return pid;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  throw Error(ErrorCode::kUnavailable, "network namespaces need CAP_SYS_ADMIN.");
}

void enter_namespace(pid_t of) {
  const std::string path = fmt::format("/proc/{}/ns/net", of);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) throw_errno("enter " + path);
  close(fd);
}

// The exit status of `command` in the namespace of process `of`; 0: in ours.
int run_command(pid_t of, const std::vector<std::string>& command, bool quiet) {
  const pid_t pid = fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    try {
      if (of != 0) enter_namespace(of);
    } catch (const Error&) {
      _exit(126);
    }
    if (quiet) {
      const int nothing = open("/dev/null", O_WRONLY);
      dup2(nothing, STDOUT_FILENO);
      dup2(nothing, STDERR_FILENO);
    }
    std::vector<char*> arguments;
    for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void run_in(pid_t of, const std::vector<std::string>& command) {
  const int code = run_command(of, command, false);
  if (code == 0) return;
  throw Error(ErrorCode::kIo, fmt::format("\"{}\" ended with {}.", fmt::join(command, " "), code));
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    all.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return all;
}

void ip(pid_t of, const std::string& arguments) { run_in(of, words("ip " + arguments)); }

// The kernel says a while after a cable is plugged in that it is, on a loaded machine longer.
// Throws kTimeout; kIo if it cannot be seen.
void wait_for_cable(pid_t of) {
  constexpr int kMostLooks = 20'000;  // a millisecond each
  const pid_t pid = fork();
  if (pid < 0) throw_errno("fork");
  if (pid == 0) {
    try {
      enter_namespace(of);
    } catch (const Error&) {
      _exit(2);
    }
    const int any = socket(AF_INET, SOCK_DGRAM, 0);
    ifreq device{};
    std::strcpy(device.ifr_name, "eth0");
    for (int look = 0; look < kMostLooks; ++look) {
      if (ioctl(any, SIOCGIFFLAGS, &device) != 0) _exit(2);
      if ((device.ifr_flags & IFF_RUNNING) != 0) _exit(0);
      usleep(1000);
    }
    _exit(1);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw_errno("waitpid");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
    throw Error(ErrorCode::kIo, "eth0 of a host cannot be looked at.");
  if (WEXITSTATUS(status) == 1)
    throw Error(ErrorCode::kTimeout, "eth0 of a host is not running after 20 s.");
}

void limit(pid_t of, const std::string& device, double bits_per_second) {
  const double burst = std::max(kLeastBurst, bits_per_second / 8 / kTimerHz * 2);
  run_in(of, words(fmt::format("tc qdisc add dev {} root tbf rate {:.0f}bit burst {:.0f} latency "
                               "100ms",
                               device, bits_per_second, burst)));
}

}  // namespace

std::string NetHosts::missing() {
  for (const char* program : {"ip", "tc"}) {
    if (run_command(0, {program, "-Version"}, true) != 0) {
      return fmt::format("{} is not installed (package iproute2)", program);
    }
  }
  try {
    const pid_t trial = keep_namespace();
    const int code = run_command(trial, words("ip link add near0 type veth peer name far0"), true);
    kill(trial, SIGKILL);
    waitpid(trial, nullptr, 0);
    return code == 0 ? "" : "veth devices need CAP_NET_ADMIN and a kernel that has them";
  } catch (const Error& error) {
    return error.what();
  }
}

NetHosts::NetHosts(const std::vector<NetHost>& hosts) {
  switch_ = keep_namespace();
  ip(switch_, "link add br0 type bridge");
  ip(switch_, "link set br0 up");
  for (const NetHost& how : hosts) {
    hosts_.push_back(keep_namespace());
    set_up(size() - 1, how);
  }
  for (const pid_t host : hosts_) wait_for_cable(host);
}

NetHosts::~NetHosts() {
  hosts_.push_back(switch_);
  for (const pid_t pid : hosts_) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

void NetHosts::set_up(int host, const NetHost& how) const {
  const pid_t pid = hosts_[static_cast<std::size_t>(host)];
  ip(switch_, fmt::format("link add port{} type veth peer name eth0 netns {}", host, pid));
  ip(switch_, fmt::format("link set port{} master br0 up", host));
  ip(pid, "link set lo up");
  if (how.v4) ip(pid, fmt::format("addr add 10.77.0.{}/24 dev eth0", host + 1));
  if (how.v6) ip(pid, fmt::format("addr add fd77::{:x}/64 dev eth0 nodad", host + 1));
  ip(pid, "link set eth0 up");
  if (how.bits_per_second <= 0) return;
  limit(pid, "eth0", how.bits_per_second);
  limit(switch_, fmt::format("port{}", host), how.bits_per_second);
}

void NetHosts::enter(int host) const { enter_namespace(hosts_[static_cast<std::size_t>(host)]); }

void NetHosts::set_link(int host, bool up) const {
  ip(switch_, fmt::format("link set port{} {}", host, up ? "up" : "down"));
}

void NetHosts::run(int host, const std::vector<std::string>& command) const {
  run_in(hosts_[static_cast<std::size_t>(host)], command);
}

}  // namespace motley::test
