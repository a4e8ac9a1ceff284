#include "test/bench/partial/pattern.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>

#include "comm/error.h"
#include "runtime/seed.h"

namespace motley::bench {
namespace {

constexpr Duration kSlice = seconds(0.002);
constexpr int kPeriodUs = 20'000;

Duration processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return seconds(static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec));
}

// False if the kernel does not take it.
bool write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  return static_cast<bool>(file.flush());
}

}  // namespace

// A share of a core for this process, by control groups of either version.
class Steps::Quota {
 public:
  explicit Quota(double share) {
    const int quota = static_cast<int>(kPeriodUs * share);
    const std::string name = fmt::format("motley-perf-{}", getpid());
    folder_ = "/sys/fs/cgroup/cpu/" + name;
    mkdir(folder_.c_str(), 0755);
    bool ok = write_text(folder_ + "/cpu.cfs_period_us", std::to_string(kPeriodUs)) &&
              write_text(folder_ + "/cpu.cfs_quota_us", std::to_string(quota));
    if (!ok) {
      folder_ = "/sys/fs/cgroup/" + name;
      mkdir(folder_.c_str(), 0755);
      ok = write_text(folder_ + "/cpu.max", fmt::format("{} {}", quota, kPeriodUs));
    }
    if (ok && write_text(folder_ + "/cgroup.procs", std::to_string(getpid()))) return;
    throw Error(ErrorCode::kUnavailable,
                fmt::format("quota: {} is refused. Run as root, with control groups.", folder_));
  }
  ~Quota() {
    const std::string parent = folder_.substr(0, folder_.rfind('/'));
    write_text(parent + "/cgroup.procs", std::to_string(getpid()));
    rmdir(folder_.c_str());
  }

 private:
  std::string folder_;
};

const std::vector<Pattern>& patterns() {
  static const std::vector<Pattern> all = {{"homogeneous", 1}, {"one_x2", 2},   {"one_x4", 4},
                                           {"one_x8", 8},      {"random", 3},   {"half_x2", 2},
                                           {"half_x4", 4},     {"burst", 2.5},  {"authors", 5},
                                           {"shared_2", 2},    {"shared_3", 3}, {"quota_x4", 4}};
  return all;
}

const Pattern& find_pattern(const std::string& name) {
  for (const Pattern& pattern : patterns()) {
    if (pattern.name == name) return pattern;
  }
  throw Error(ErrorCode::kInvalid, fmt::format("there is no pattern \"{}\". See --help.", name));
}

double slowness(const Pattern& pattern, int rank, int workers) {
  const bool is_last = rank == workers - 1;
  if (pattern.name.starts_with("one_") && is_last) return pattern.slowest;
  if (pattern.name.starts_with("quota_") && is_last) return pattern.slowest;
  if (pattern.name.starts_with("half_") && 2 * rank >= workers) return pattern.slowest;
  if (pattern.name.starts_with("shared_") && rank < pattern.slowest) return pattern.slowest;
  if (pattern.name == "random") return 1.3;
  if (pattern.name == "authors") return 1.5;
  return 1;
}

Steps::Steps(const Pattern& pattern, int rank, int workers, std::uint64_t seed,
             const std::string& folder)
    : pattern_(pattern),
      rank_(rank),
      workers_(workers),
      random_(runtime::make_generator({.seed = seed, .rank = rank, .purpose = "speed"})) {
  const bool slow = slowness(pattern, rank, workers) > 1;
  if (pattern.name.starts_with("shared_") && slow) {
    device_ = open((folder + "/device").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (device_ < 0) throw_errno("open " + folder + "/device");
  }
  if (!pattern.name.starts_with("quota_")) return;
  if (slow) quota_ = std::make_unique<Quota>(1 / pattern.slowest);
  burnt_ = processor_time();
}

Steps::~Steps() {
  if (device_ >= 0) close(device_);
}

double Steps::length(std::int64_t number) {
  const double jitter = std::normal_distribution<double>(1, 0.05)(random_);
  const double chance = std::uniform_real_distribution<double>()(random_);
  double length = std::max(0.5, jitter);
  if (device_ < 0)
    length *= pattern_.name.starts_with("half_") || pattern_.name.starts_with("one_")
                  ? slowness(pattern_, rank_, workers_)
                  : 1;
  if (pattern_.name == "random" && chance < 0.1) length += 3;
  if (pattern_.name == "authors" && chance < 0.1) length += 5;
  if (pattern_.name == "burst" && rank_ == workers_ - 1 && number == 20) length += 100;
  return length;
}

void Steps::lengthen(std::int64_t number, TimePoint begin, Duration base) {
  Clock& clock = Clock::real();
  const Duration whole = seconds(length(number) * to_seconds(base));
  if (pattern_.name.starts_with("quota_")) {
    while (processor_time() - burnt_ < whole) {
    }
    burnt_ = processor_time();
  } else if (device_ >= 0) {
    sleep_shared(whole - (clock.now() - begin));
  } else {
    clock.sleep_until(begin + whole);
  }
}

void Steps::sleep_shared(Duration left) const {
  Clock& clock = Clock::real();
  for (; left > Duration{}; left -= kSlice) {
    flock(device_, LOCK_EX);
    clock.sleep_until(clock.now() + std::min(left, kSlice));
    flock(device_, LOCK_UN);
  }
}

}  // namespace motley::bench
