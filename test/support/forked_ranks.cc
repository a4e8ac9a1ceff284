#include "test/support/forked_ranks.h"

#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "comm/error.h"

namespace motley::test {
std::string FolderStore::path(std::string_view key) const {
  std::string name(key);
  std::replace(name.begin(), name.end(), '/', '+');
  return folder_ + "/" + name;
}

void FolderStore::set(std::string_view key, std::string_view value) {
  const std::string temporary = path(key) + "." + std::to_string(getpid());
  std::ofstream(temporary, std::ios::binary) << value;
  std::filesystem::rename(temporary, path(key));
}

std::string FolderStore::get(std::string_view key, TimePoint deadline) {
  while (true) {
    std::ifstream file(path(key), std::ios::binary);
    if (file) return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const TimePoint now = Clock::real().now();
    if (now >= deadline) {
      throw Error(ErrorCode::kTimeout, "store: no value of " + std::string(key) + " came in time.");
    }
    Clock::real().sleep_until(now + seconds(0.001));
  }
}

std::int64_t FolderStore::add(std::string_view key, std::int64_t amount) {
  std::FILE* const file = std::fopen(path(key).c_str(), "a+");
  if (file == nullptr) throw_errno("open " + path(key));
  flock(fileno(file), LOCK_EX);
  std::int64_t sum = amount;
  std::fprintf(file, "%lld\n", static_cast<long long>(amount));
  std::fflush(file);
  std::rewind(file);
  long long term = 0;
  for (sum = 0; std::fscanf(file, "%lld", &term) == 1;) sum += term;
  std::fclose(file);
  return sum;
}

ForkedRanks::ForkedRanks(int size, const Body& body) : store_(folder_.path()) {
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid != 0) {
      pids_.push_back(pid);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bool ok = false;
    try {
      ok = body(rank, store_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    std::fflush(nullptr);
    _exit(ok ? 0 : 1);
  }
}

ForkedRanks::~ForkedRanks() {
  for (std::size_t rank = 0; rank < pids_.size(); ++rank) kill(static_cast<int>(rank));
}

void ForkedRanks::kill(int rank) {
  const pid_t pid = std::exchange(pids_[static_cast<std::size_t>(rank)], 0);
  if (pid <= 0) return;
  ::kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

bool ForkedRanks::ended_well(int rank) {
  int status = 0;
  waitpid(std::exchange(pids_[static_cast<std::size_t>(rank)], 0), &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool ForkedRanks::succeeded(int rank) {
  pid_t& pid = pids_[static_cast<std::size_t>(rank)];
  const TimePoint deadline = Clock::real().now() + seconds(60);
  int status = 0;
  while (Clock::real().now() < deadline) {
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) {
      pid = 0;
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    Clock::real().sleep_until(Clock::real().now() + seconds(0.001));
  }
  return false;
}

}  // namespace motley::test
