#include "comm/transport/port_guard.h"

#include <fmt/format.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "comm/error.h"

namespace motley {
namespace {

constexpr Duration kPause = seconds(0.002);
// Without a file: the name is free again when its holder ends, and each network namespace has its
// own, as it has its own ports.
constexpr char kName[] = "\0motley-ports";

// At the IPv6 wildcard, which stands for both families, or where there is no IPv6 at the other.
bool is_free(int port) {
  sockaddr_storage any{};
  any.ss_family = AF_INET6;
  int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    any.ss_family = AF_INET;
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  // The port stands at the same place in both kinds of address.
  reinterpret_cast<sockaddr_in&>(any).sin_port = htons(static_cast<std::uint16_t>(port));
  const socklen_t length = any.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  const bool free = bind(fd, reinterpret_cast<sockaddr*>(&any), length) == 0;
  if (fd >= 0) close(fd);
  return free;
}

}  // namespace

PortGuard::PortGuard(const PortRange& range, TimePoint deadline) {
  if (range.any()) return;
  lock_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (lock_ < 0) throw_errno("open a socket to guard ports");
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, kName, sizeof kName - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + sizeof kName - 1);
  while (bind(lock_, reinterpret_cast<sockaddr*>(&name), length) != 0) {
    const TimePoint now = Clock::real().now();
    if (errno == EADDRINUSE && now < deadline) {
      Clock::real().sleep_until(now + kPause);
      continue;
    }
    const int error = errno;
    close(lock_);
    errno = error;
    throw_errno("guard the ports of MOTLEY_PORTS");
  }
  for (int port = range.low; port <= range.high; ++port) {
    if (is_free(port)) return;
  }
  close(lock_);
  throw Error(ErrorCode::kIo,
              fmt::format("network: all {} ports in {} are in use. Widen the range (MOTLEY_PORTS): "
                          "each rank takes one, and rank 0 one more if it runs the controller.",
                          range.high - range.low + 1, range.to_text()));
}

PortGuard::~PortGuard() {
  if (lock_ >= 0) close(lock_);
}

}  // namespace motley
