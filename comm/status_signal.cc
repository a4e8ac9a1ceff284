#include "comm/status_signal.h"

#include <poll.h>

#include <atomic>
#include <thread>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/wake.h"
#include "comm/error.h"

namespace motley {
namespace {

// A signal handler knows nothing but what is global.
std::atomic<Wake*> waked_by_signal{nullptr};

void on_signal(int) {
  if (Wake* const wake = waked_by_signal.load()) wake->signal();
}

}  // namespace

struct StatusSignal::Impl {
  Impl(const Communicator& comm_, std::function<void(const std::string&)> print_, int signal_)
      : comm(comm_), print(std::move(print_)), signal(signal_) {
    Wake* nobody = nullptr;
    if (!waked_by_signal.compare_exchange_strong(nobody, &wake)) {
      throw Error(ErrorCode::kInvalid,
                  "status signal: this process has one already. Keep one for all communicators.");
    }
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    if (sigaction(signal, &action, &before) != 0) {
      waked_by_signal = nullptr;
      throw_errno("handle signal " + std::to_string(signal));
    }
    thread = std::thread([this] { run(); });
  }
  ~Impl() {
    sigaction(signal, &before, nullptr);
    stopping = true;
    wake.signal();
    thread.join();
    waked_by_signal = nullptr;
  }

  void run() {
    pollfd item{.fd = wake.fd(), .events = POLLIN, .revents = 0};
    while (!stopping) {
      if (poll(&item, 1, -1) <= 0) continue;
      wake.clear();
      if (!stopping) print(comm.status());
    }
  }

  const Communicator& comm;
  std::function<void(const std::string&)> print;
  int signal;
  struct sigaction before {};
  Wake wake;
  std::atomic<bool> stopping{false};
  std::thread thread;
};

StatusSignal::StatusSignal(const Communicator& comm, std::function<void(const std::string&)> print,
                           int signal)
    : impl_(std::make_unique<Impl>(comm, std::move(print), signal)) {}
StatusSignal::~StatusSignal() = default;

}  // namespace motley
