#include "wide/file/parts_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

// A part, or what WholeFile had of one when its run was killed.
bool is_part(std::string_view name) {
  if (name.ends_with(".tmp")) name.remove_suffix(4);
  if (!name.ends_with(".cache")) return false;
  name.remove_suffix(6);
  return name.size() >= 6 &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

PartsFolder::PartsFolder(const std::string& path) : path_(path) {
  if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
    throw_errno("make the folder of parts " + path);
  lock_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) throw_errno("open the folder of parts " + path);
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) throw_errno("lock the folder of parts " + path);
      throw Error(ErrorCode::kInvalid,
                  path +
                      ": another run keeps its parts there. Wait for it, or write the model to "
                      "another path");
    }
    empty();
  } catch (...) {
    close(lock_);
    throw;
  }
}

PartsFolder::PartsFolder(PartsFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

PartsFolder::~PartsFolder() {
  if (lock_ < 0) return;
  std::error_code none;
  std::filesystem::remove_all(path_, none);
  close(lock_);
}

std::string PartsFolder::file(std::size_t number) const {
  return fmt::format("{}/{:06}.cache", path_, number);
}

void PartsFolder::empty() const {
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.is_regular_file() && is_part(entry.path().filename().string())) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: holds {}, which is no part of a run. Parts are kept there: move "
                            "it, or write the model to another path",
                            path_, entry.path().filename().string()));
  }
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    std::filesystem::remove(entry.path());
}

}  // namespace motley::wide
