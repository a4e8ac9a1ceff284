#include "comm/topology/processor_share.h"

#include <algorithm>
#include <limits>
#include <sstream>

namespace motley {
namespace {

constexpr double kAll = std::numeric_limits<double>::infinity();

double quotient(const std::string& quota, const std::string& period) {
  double q = 0;
  double p = 0;
  const bool known = (std::istringstream(quota) >> q) && (std::istringstream(period) >> p);
  return known && q > 0 && p > 0 ? q / p : kAll;  // "max" and -1 mean that there is no quota
}

// "quota period" of version 2 in one file, of version 1 in two.
double share_of(const std::string& folder,
                const std::function<std::string(const std::string&)>& read) {
  std::istringstream both(read(folder + "/cpu.max"));
  std::string quota;
  std::string period;
  both >> quota >> period;
  return std::min(quotient(quota, period), quotient(read(folder + "/cpu.cfs_quota_us"),
                                                    read(folder + "/cpu.cfs_period_us")));
}

}  // namespace

double processor_share(const std::string& cgroups,
                       const std::function<std::string(const std::string&)>& read) {
  double share = kAll;
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {  // "4:cpu,cpuacct:/a/b"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(",cpu,") == std::string::npos) continue;
    std::string path = line.substr(second + 1);
    while (true) {  // a group is bound by all above it, too
      while (!path.empty() && path.back() == '/') path.pop_back();
      share = std::min(
          share, share_of((version_2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + path, read));
      if (path.empty()) break;
      path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return share;
}

}  // namespace motley
