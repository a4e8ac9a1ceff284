#include "wide/file/memory_limit.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

// The number in a file; none where there is no file, or it says "max".
std::uint64_t number_in(const std::filesystem::path& file) {
  std::uint64_t number = 0;
  return std::ifstream(file) >> number ? number : kNone;
}

// Of the group at `path` below `root` and those around it.
std::uint64_t least(const std::filesystem::path& root, std::filesystem::path path,
                    const char* file) {
  std::uint64_t limit = number_in(root / file);
  for (path = path.relative_path(); !path.empty(); path = path.parent_path())
    limit = std::min(limit, number_in(root / path / file));
  return limit;
}

double mb(double bytes) { return bytes / (1 << 20); }

}  // namespace

std::uint64_t cgroup_limit(const std::string& membership, const std::filesystem::path& root) {
  std::uint64_t limit = kNone;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) limit = std::min(limit, least(root, path, "memory.max"));
    if (controllers == "memory")
      limit = std::min(limit, least(root / "memory", path, "memory.limit_in_bytes"));
  }
  return limit == kNone ? 0 : limit;
}

std::uint64_t memory_limit() {
  const auto machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
  std::ostringstream membership;
  membership << std::ifstream("/proc/self/cgroup").rdbuf();
  const std::uint64_t group = cgroup_limit(membership.str(), "/sys/fs/cgroup");
  return group == 0 ? machine : std::min(machine, group);
}

std::uint64_t memory_in_use() {
  std::uint64_t size = 0, resident = 0, of_files = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> of_files;
  return (resident - of_files) * static_cast<std::uint64_t>(sysconf(_SC_PAGE_SIZE));
}

void check_room(const std::string& what, double bytes, std::uint64_t limit,
                const std::string& advice) {
  const auto used = static_cast<double>(memory_in_use());
  if (used + bytes <= static_cast<double>(limit)) return;
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{} need about {:.1f} MB of memory beside {:.1f} MB in use, but {:.1f} MB "
                  "is the limit. {}",
                  what, mb(bytes), mb(used), mb(static_cast<double>(limit)), advice));
}

}  // namespace motley::wide
