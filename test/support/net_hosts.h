// test/support/net_hosts.h: several hosts on one machine, for tests: network namespaces joined by a
// switch. Each host has eth0, with 10.77.0.N+1 and fd77::N+1 (N from 0), and lo.
//
//   if (const std::string why = NetHosts::missing(); !why.empty()) GTEST_SKIP() << why;
//   NetHosts hosts({{.bits_per_second = 1e9}, {.bits_per_second = 250e6}});
//   ForkedRanks ranks(2, [&](int rank, Store&) { hosts.enter(rank); …; return ok; });
//   hosts.set_link(1, false);
//
// All is gone when the object is, or its process. To be made while the process has one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace motley::test {

struct NetHost {
  double bits_per_second = 0;  // of its port, in each direction; 0: as fast as it goes
  bool v4 = true;
  bool v6 = true;
};

class NetHosts {
 public:
  // What this machine lacks, by name; empty if nothing.
  static std::string missing();

  explicit NetHosts(const std::vector<NetHost>& hosts);
  NetHosts(const NetHosts&) = delete;
  NetHosts& operator=(const NetHosts&) = delete;
  ~NetHosts();

  int size() const noexcept { return static_cast<int>(hosts_.size()); }
  // The calling process goes there, with its one thread.
  void enter(int host) const;
  // Pulls the cable between `host` and the switch, or plugs it in again.
  void set_link(int host, bool up) const;
  // Runs a program there, by name, to its end. Throws kIo unless it ends with 0.
  void run(int host, const std::vector<std::string>& command) const;

 private:
  void set_up(int host, const NetHost& how) const;

  pid_t switch_ = 0;  // processes that keep the namespaces
  std::vector<pid_t> hosts_;
};

}  // namespace motley::test
