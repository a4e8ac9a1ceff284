#include "comm/control/wake.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "comm/error.h"

namespace motley {

Wake::Wake() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (fd_ < 0) throw_errno("create an eventfd");
}

Wake::~Wake() { close(fd_); }

void Wake::signal() noexcept {
  const std::uint64_t one = 1;
  // Fails only where the counter is full, in which case the fd is readable anyway.
  [[maybe_unused]] const auto written = write(fd_, &one, sizeof one);
}

void Wake::clear() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(fd_, &count, sizeof count);
}

void Wake::wait(int descriptor, Duration longest) noexcept {
  const timespec timeout{.tv_sec = longest.count() / 1'000'000'000,
                         .tv_nsec = longest.count() % 1'000'000'000};
  pollfd items[] = {{.fd = descriptor, .events = POLLIN, .revents = 0},
                    {.fd = fd_, .events = POLLIN, .revents = 0}};
  ppoll(items, 2, &timeout, nullptr);
  if (items[1].revents != 0) clear();
}

}  // namespace motley
