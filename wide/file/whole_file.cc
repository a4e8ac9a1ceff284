#include "wide/file/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "comm/error.h"

namespace motley::wide {
namespace {

std::uint32_t crc_on(std::uint32_t crc, const void* data, std::size_t n) {
  if (n == 0) return crc;  // zlib takes a null pointer for a new beginning
  return static_cast<std::uint32_t>(crc32_z(crc, static_cast<const Bytef*>(data), n));
}

struct Names {
  std::string last;   // in the end
  std::string fresh;  // and until then
  bool replaces;
};

Names names_of(const std::string& path) {
  std::error_code none;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, none);
  const bool replaces = !std::filesystem::exists(path, none) || is_regular_file(target, none);
  const std::string last = target.empty() ? path : target.string();
  return {last, replaces ? last + ".tmp" : path, replaces};
}

OpenFile open(const std::string& path, const char* mode) {
  OpenFile file(std::fopen(path.c_str(), mode));
  if (file == nullptr) throw_errno("open " + path);
  return file;
}

// Whether the file is still the one of this name, rather than one that was moved to its place.
bool is_named(int file, const std::string& name) {
  struct stat opened, named;
  return fstat(file, &opened) == 0 && stat(name.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

// Emptied, and this writer's until it is closed; null if another writes to it. One that was left by
// a run that was killed is nobody's.
OpenFile take(const std::string& name) {
  while (true) {
    const int file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) throw_errno("open " + name);
    OpenFile taken(fdopen(file, "wb"));
    if (taken == nullptr) throw_errno("open " + name);
    if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return nullptr;
    if (!is_named(file, name)) continue;
    if (ftruncate(file, 0) != 0) throw_errno("empty " + name);
    return taken;
  }
}

std::string name_beside(const std::string& last, int other) {
  return last + "." + std::to_string(other) + ".tmp";
}

// Of runs that were killed while another wrote the same file.
void remove_left(const std::string& last, const std::string& ours) {
  for (int other = 2;; ++other) {
    const std::string name = name_beside(last, other);
    if (name == ours) continue;
    const int file = ::open(name.c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0 && is_named(file, name)) std::remove(name.c_str());
    close(file);
  }
}

}  // namespace

WholeFile::WholeFile(const std::string& path) {
  const Names names = names_of(path);
  last_ = names.last;
  fresh_ = names.fresh;
  replaces_ = names.replaces;
  if (!replaces_) {
    file_ = open(fresh_, "wb");
    return;
  }
  for (int other = 2; (file_ = take(fresh_)) == nullptr; ++other)
    fresh_ = name_beside(last_, other);
  remove_left(last_, fresh_);
}

void WholeFile::check(const std::string& path) {
  const Names names = names_of(path);
  for (const std::string& name : {names.last, names.fresh}) {
    if (std::error_code none; std::filesystem::is_directory(name, none)) {
      throw Error(ErrorCode::kIo, name + " is a folder, not a file that can be written");
    }
  }
  if (access(names.fresh.c_str(), W_OK) == 0) return;
  if (errno != ENOENT) throw_errno("write " + path);
  std::string folder = std::filesystem::path(names.fresh).parent_path().string();
  if (folder.empty()) folder = ".";
  if (access(folder.c_str(), W_OK | X_OK) != 0) throw_errno("write " + path);
}

std::string WholeFile::name_until_whole(const std::string& path) { return names_of(path).fresh; }

WholeFile::~WholeFile() {
  if (file_ == nullptr) return;
  if (replaces_) std::remove(fresh_.c_str());  // before another can take it
  file_.reset();
}

void WholeFile::put(const void* data, std::size_t n) {
  if (n > 0 && std::fwrite(data, 1, n, file_.get()) != n) throw_errno("write " + fresh_);
  crc_ = crc_on(crc_, data, n);
}

void WholeFile::commit() {
  const bool flushed = std::fflush(file_.get()) == 0;
  // EINVAL: a device or pipe has nothing to keep.
  if (!flushed || (fsync(fileno(file_.get())) != 0 && errno != EINVAL)) {
    throw_errno("write " + fresh_);
  }
  if (replaces_ && std::rename(fresh_.c_str(), last_.c_str()) != 0) {
    throw_errno("rename " + fresh_ + " to " + last_);
  }
  file_.reset();
}

SizedFile::SizedFile(const std::string& path) : path_(path), file_(open(path, "rb")) {
  if (std::fseek(file_.get(), 0, SEEK_END) != 0) throw_errno("seek in " + path);
  const long size = std::ftell(file_.get());
  if (size < 0) throw_errno("seek in " + path);
  size_ = static_cast<std::uint64_t>(size);
  std::rewind(file_.get());
}

void SizedFile::get(void* data, std::size_t n) {
  if (n > 0 && std::fread(data, 1, n, file_.get()) != n) {
    if (std::ferror(file_.get()) != 0) throw_errno("read " + path_);
    fail("ends too early: it was truncated");
  }
  crc_ = crc_on(crc_, data, n);
}

void SizedFile::fail(const std::string& what) const {
  throw Error(ErrorCode::kInvalid, path_ + ": " + what);
}

}  // namespace motley::wide
