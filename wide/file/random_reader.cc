#include "wide/file/random_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "comm/error.h"

namespace motley::wide {

RandomReader::RandomReader(const std::string& path)
    : path_(path), fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_ < 0) throw_errno("open " + path);
  posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);  // a wish: nothing fails without
}

RandomReader::~RandomReader() { close(fd_); }

std::uint64_t RandomReader::size() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) throw_errno("fstat " + path_);
  return static_cast<std::uint64_t>(info.st_size);
}

std::size_t RandomReader::get(void* out, std::size_t n, std::uint64_t offset) const {
  auto* const bytes = static_cast<char*>(out);
  std::size_t done = 0;
  while (done < n) {
    const ssize_t got = pread(fd_, bytes + done, n - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("read " + path_);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace motley::wide
