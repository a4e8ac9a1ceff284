#include "runtime/file_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {
namespace {

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : path_(path), number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (number_ < 0) throw_errno("open " + path);
  }
  Descriptor(Descriptor&& other) noexcept
      : path_(std::move(other.path_)), number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int number() const noexcept { return number_; }
  void sync() const {
    while (::fsync(number_) != 0) {
      if (errno != EINTR) throw_errno("sync " + path_);
    }
  }

 private:
  std::string path_;
  int number_;
};

class LocalLock final : public FileLock {
 public:
  explicit LocalLock(const std::string& path) : descriptor_(path, O_WRONLY | O_CREAT) {
    if (::flock(descriptor_.number(), LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) throw_errno("lock " + path);
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: another program holds this lock. Wait for its end, or use "
                            "another folder.",
                            path));
  }

 private:
  Descriptor descriptor_;
};

class LocalFile final : public File {
 public:
  explicit LocalFile(const std::string& path)
      : path_(path), descriptor_(path, O_WRONLY | O_CREAT | O_TRUNC) {}
  void write(ConstBytes bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_.number(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) {
        throw_errno(fmt::format("write {} bytes more to {}", bytes.size(), path_));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }
  void sync() override { descriptor_.sync(); }

 private:
  std::string path_;
  Descriptor descriptor_;
};

[[noreturn]] void throw_error(const std::string& doing, const std::error_code& error) {
  throw Error(ErrorCode::kIo, fmt::format("{}: {} ({})", doing, error.message(), error.value()));
}

}  // namespace

std::unique_ptr<FileLock> LocalFiles::lock(const std::string& path) {
  return std::make_unique<LocalLock>(path);
}

std::unique_ptr<File> LocalFiles::create(const std::string& path) {
  return std::make_unique<LocalFile>(path);
}

void LocalFiles::rename(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_errno("rename " + from + " to " + to);
}

void LocalFiles::remove(const std::string& path) {
  if (::unlink(path.c_str()) != 0) throw_errno("remove " + path);
}

void LocalFiles::make_folder(const std::string& path) {
  std::filesystem::path folder = std::filesystem::absolute(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it ended in '/'
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  const std::string above = folder.parent_path().string();
  make_folder(above);
  std::filesystem::create_directory(folder, error);
  if (error) throw_error("make folder " + path, error);
  sync_folder(above);
}

void LocalFiles::sync_folder(const std::string& path) {
  Descriptor(path, O_RDONLY | O_DIRECTORY).sync();
}

std::vector<std::string> LocalFiles::list(const std::string& folder) const {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = std::filesystem::directory_iterator(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) throw_error("list " + folder, error);
  return names;
}

std::vector<std::byte> LocalFiles::read(const std::string& path) const {
  const Descriptor file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(file.number(), &status) != 0) throw_errno("look at " + path);
  std::vector<std::byte> content(static_cast<std::size_t>(status.st_size));
  for (std::size_t done = 0; done < content.size();) {
    const ssize_t got = ::read(file.number(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read " + path);
    if (got == 0) content.resize(done);  // it has been cut since
    done += static_cast<std::size_t>(got);
  }
  return content;
}

}  // namespace motley::runtime
