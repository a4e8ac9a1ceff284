#include "runtime/launch/sink.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace motley::runtime {

void Sink::write_ready() {
  std::size_t done = 0;
  while (!broken_ && done < text_.size()) {
    // A pipe that poll calls writable takes PIPE_BUF bytes without blocking; more it may not.
    pollfd ready{.fd = fd_, .events = POLLOUT};
    if (poll(&ready, 1, 0) <= 0) break;
    const std::size_t size = std::min<std::size_t>(text_.size() - done, PIPE_BUF);
    const ssize_t written = write(fd_, text_.data() + done, size);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      broken_ = true;
    }
  }
  text_.erase(0, done);
  if (broken_) text_.clear();
}

void Sink::give_up() {
  broken_ = true;
  text_.clear();
}

bool is_same_file(int first, int second) {
  struct stat a {};
  struct stat b {};
  return fstat(first, &a) == 0 && fstat(second, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

}  // namespace motley::runtime
