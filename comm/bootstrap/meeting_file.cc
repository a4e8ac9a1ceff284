#include "comm/bootstrap/meeting_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <sstream>

#include "comm/error.h"

namespace motley {
namespace {

constexpr const char* kHeading = "motley meeting place 1";
constexpr std::size_t kMostBytes = 1 << 16;  // of a file; ours have some hundred

class File {
 public:
  File(const std::string& path, int flags) : fd_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const noexcept { return fd_; }

 private:
  int fd_;
};

// The text of the file, which must be this user's: in a folder that all may write to, somebody else
// could have put one there that leads to a controller of his own.
std::string read_own(const File& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) throw_errno("look at " + path);
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: this file is of user {}, but this process of {}. Use a path in a "
                            "folder that nobody else writes to.",
                            path, status.st_uid, geteuid()));
  }
  std::string text(kMostBytes, '\0');
  const ssize_t got = read(file.fd(), text.data(), text.size());
  if (got < 0) throw_errno("read " + path);
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

void write_meeting_file(const std::string& path, const MeetingPlace& place) {
  std::string text = fmt::format("{}\n{}\n", kHeading, place.token);
  for (const std::string& address : place.addresses) text += address + "\n";
  const std::string temporary = fmt::format("{}.{}", path, getpid());
  unlink(temporary.c_str());  // of an earlier process with our number; nothing is followed or kept
  const File file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
  if (file.fd() < 0) throw_errno(fmt::format("create {} for the ranks to meet", temporary));
  const auto give_up = [&](const std::string& doing) {
    const int error = errno;
    unlink(temporary.c_str());
    errno = error;
    throw_errno(doing);
  };
  if (write(file.fd(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      fsync(file.fd()) != 0) {
    give_up(fmt::format("write {} for the ranks to meet", temporary));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    give_up(fmt::format("rename {} to {}", temporary, path));
  }
}

std::optional<MeetingPlace> read_meeting_file(const std::string& path) {
  const File file(path, O_RDONLY | O_NONBLOCK);
  if (file.fd() < 0) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    throw_errno("open " + path);
  }
  std::istringstream in(read_own(file, path));
  std::string heading;
  MeetingPlace place;
  std::getline(in, heading);
  std::getline(in, place.token);
  for (std::string line; std::getline(in, line);) place.addresses.push_back(line);
  if (heading != kHeading || place.addresses.empty()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: this file was not written by a rank 0 for the others to meet. Use "
                            "a path of its own for each job.",
                            path));
  }
  return place;
}

}  // namespace motley
