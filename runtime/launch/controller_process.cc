#include "runtime/launch/controller_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "comm/clock.h"
#include "comm/error.h"

namespace motley::runtime {
namespace {

constexpr Duration kStartTime = seconds(10);  // it needs milliseconds on an idle machine

// The first line that comes from `fd`; what came of it if that ends, or none comes in time.
std::string read_line(const Fd& fd) {
  Clock& clock = Clock::real();
  const TimePoint deadline = clock.now() + kStartTime;
  std::string text;
  while (text.find('\n') == text.npos && clock.now() < deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.now());
    pollfd ready{.fd = fd.get(), .events = POLLIN};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    char bytes[256];
    const ssize_t got = read(fd.get(), bytes, sizeof bytes);
    if (got == 0 || (got < 0 && errno != EINTR)) break;
    if (got > 0) text.append(bytes, static_cast<std::size_t>(got));
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace

ControllerProcess::ControllerProcess(const std::string& program, int size,
                                     const std::vector<std::string>& environment,
                                     const std::string& standby_for) {
  Pipe orders = make_pipe();
  Pipe answer = make_pipe();
  std::vector<std::string> arguments = {program, "--orders", fmt::format("--size={}", size)};
  if (!standby_for.empty()) arguments.push_back("--standby_for=" + standby_for);
  process_.emplace(SpawnOptions{.program = program,
                                .arguments = arguments,
                                .environment = environment,
                                .in = orders.read.get(),
                                .out = answer.write.get()});
  answer.write.close();
  address_ = read_line(answer.read);
  if (!address_.starts_with("tcp://")) {
    throw Error(ErrorCode::kIo,
                fmt::format("motley-run: the controller {} gave \"{}\" as its address, and not "
                            "tcp://host:port within {:g} s. Its own message, if any, is above.",
                            program, address_, to_seconds(kStartTime)));
  }
  orders_ = std::move(orders.write);
  set_nonblocking(orders_);
}

void ControllerProcess::report_lost(int rank, const std::string& why) {
  // Best effort: where the controller is gone or stuck, its leases and the ranks' deadlines remain.
  const std::string order = fmt::format("lost {} {}\n", rank, why);
  [[maybe_unused]] const auto written = write(orders_.get(), order.data(), order.size());
}

}  // namespace motley::runtime
