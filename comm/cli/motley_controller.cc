// motley-controller: the controller of one job as a process of its own.
//
//   motley-controller --bind tcp://0.0.0.0:4000 --size 4 --token "$MOTLEY_TOKEN"
//
// Prints the address that ranks are to be given as MOTLEY_CONTROLLER, then serves until SIGINT or
// SIGTERM.
#include <fmt/core.h>
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <csignal>
#include <cstdio>

#include "comm/controller.h"
#include "comm/error.h"
#include "comm/options.h"
#include "comm/version.h"

DEFINE_string(bind, "tcp://127.0.0.1:0", "where to listen; port 0: one that the kernel chooses");
DEFINE_int32(size, 0, "number of ranks of the job; 0: MOTLEY_SIZE");
DEFINE_string(token, "",
              "secret of the job; empty: MOTLEY_TOKEN, which other users cannot see in ps");
DEFINE_double(lease, 0, "seconds of silence after which a rank is dead; 0: MOTLEY_LEASE");

namespace {

void serve() {
  const motley::Options options = motley::Options::from_environment();
  const motley::ControllerOptions controller_options{
      .bind = FLAGS_bind,
      .size = FLAGS_size != 0 ? FLAGS_size : options.size,
      .token = FLAGS_token.empty() ? options.token : FLAGS_token,
      .lease = FLAGS_lease != 0 ? motley::seconds(FLAGS_lease) : options.lease};
  // Blocked before threads start, so that none of them takes the signals that we wait for.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const motley::ControllerServer server(controller_options);
  fmt::print("{}\n", server.address());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  LOG(INFO) << "signal " << signal << ": the controller ends";
}

}  // namespace

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  gflags::SetVersionString(motley::version_text());
  gflags::SetUsageMessage("runs the controller of a job and prints its address");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    serve();
  } catch (const motley::Error& error) {
    fmt::print(stderr, "motley-controller: {}\n", error.what());
    return 1;
  }
  return 0;
}
