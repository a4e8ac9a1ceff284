// motley-controller: the controller of one job as a process of its own.
//
//   motley-controller --bind tcp://0.0.0.0:4000 --size 4 --token "$MOTLEY_TOKEN"
//
// Prints the address that ranks are to be given as MOTLEY_CONTROLLER, then serves until SIGINT or
// SIGTERM. A launcher that starts it with --orders tells it of deaths on its standard input, and
// when that ends, so does the controller: it does not outlive its job.
//
//   motley-controller --bind tcp://0.0.0.0:4000 --size 4 --standby_for tcp://first:4000
//
// is ready to take the place of the one at first:4000 (comm/controller.h). One whose place another
// has taken ends with status 1.
#include <fmt/core.h>
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "comm/bootstrap/rendezvous_url.h"
#include "comm/control/wake.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "comm/options.h"
#include "comm/version.h"

DEFINE_string(bind, "tcp://127.0.0.1:0", "where to listen; port 0: one that the kernel chooses");
DEFINE_int32(size, 0, "number of ranks of the job; 0: MOTLEY_SIZE");
DEFINE_string(token, "",
              "secret of the job; empty: MOTLEY_TOKEN, which other users cannot see in ps");
DEFINE_double(lease, 0, "seconds of silence after which a rank is dead; 0: MOTLEY_LEASE");
DEFINE_string(standby_for, "",
              "addresses of the controllers that serve rather than this one, between commas");
DEFINE_bool(orders, false, "read lines \"lost RANK WHY\" from standard input, and end with it");

namespace {

void take_order(std::string_view line, motley::ControllerServer& server) {
  constexpr std::string_view kLost = "lost ";
  int rank = -1;
  const char* const end = line.data() + line.size();
  const auto number = line.starts_with(kLost)
                          ? std::from_chars(line.data() + kLost.size(), end, rank)
                          : std::from_chars_result{line.data(), std::errc::invalid_argument};
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != ' ') {
    LOG(WARNING) << "order \"" << line << "\" is not understood. Use: lost RANK WHY.";
    return;
  }
  server.report_lost(rank, std::string(number.ptr + 1, end));
}

// Takes what standard input has. False at its end.
bool take_orders(std::string& text, motley::ControllerServer& server) {
  char bytes[4096];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
  if (got <= 0) return got < 0 && (errno == EINTR || errno == EAGAIN);
  text.append(bytes, static_cast<std::size_t>(got));
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != text.npos; end = text.find('\n', begin)) {
    take_order(std::string_view(text).substr(begin, end - begin), server);
    begin = end + 1;
  }
  text.erase(0, begin);
  return true;
}

// Returns when one of `signals` arrives, the orders end or another controller has taken over.
void wait_for_end(const sigset_t& signals, const motley::Wake& superseded,
                  motley::ControllerServer& server) {
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  if (signal_fd < 0) motley::throw_errno("motley-controller: create a signalfd");
  pollfd items[] = {{.fd = signal_fd, .events = POLLIN},
                    {.fd = superseded.fd(), .events = POLLIN},
                    {.fd = STDIN_FILENO, .events = POLLIN}};
  const nfds_t count = FLAGS_orders ? 3 : 2;
  std::string text;
  while (true) {
    if (poll(items, count, -1) < 0) continue;  // EINTR
    if (items[0].revents != 0) {
      LOG(INFO) << "a signal: the controller ends";
      break;
    }
    if (items[1].revents != 0) break;
    if (items[2].revents != 0 && !take_orders(text, server)) break;
  }
  close(signal_fd);
}

// The exit status.
int serve() {
  const motley::Options options = motley::Options::from_environment();
  motley::Wake superseded;
  std::atomic<bool> in_vain{false};
  motley::ControllerOptions controller_options{
      .bind = FLAGS_bind,
      .size = FLAGS_size != 0 ? FLAGS_size : options.size,
      .token = FLAGS_token.empty() ? options.token : FLAGS_token,
      .lease = FLAGS_lease != 0 ? motley::seconds(FLAGS_lease) : options.lease,
      .on_end = [&](const std::string& why) {
        LOG(ERROR) << "the controller ends: " << why;
        in_vain = true;
        superseded.signal();
      }};
  if (!FLAGS_standby_for.empty())
    controller_options.standby_for = motley::addresses_in(FLAGS_standby_for);
  // Blocked before threads start, so that none of them takes the signals that we wait for.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  motley::ControllerServer server(controller_options);
  fmt::print("{}\n", server.address());
  std::fflush(stdout);
  wait_for_end(signals, superseded, server);
  return in_vain ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  gflags::SetVersionString(motley::version_text());
  gflags::SetUsageMessage("runs the controller of a job and prints its address");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    return serve();
  } catch (const motley::Error& error) {
    fmt::print(stderr, "motley-controller: {}\n", error.what());
    return 1;
  }
}
