// runtime/launch.h: starts the ranks of a job as processes of this host and looks after them until
// they have ended. `motley-run` is this as a program.
//
//   int main(int argc, char** argv, char** environment) {
//     return launch({.size = 4, .command = {"./train", "--epochs", "3"}}, environment);
//   }
//
// With the ranks it starts the controller of the job, a process of its own, and gives each rank its
// place as the variables of comm/options.h (MOTLEY_RANK, MOTLEY_SIZE, MOTLEY_CONTROLLER, …), so the
// program only calls Communicator::join(Options::from_environment()). Programs that know nothing of
// Motley run as well.
//
//   output   each line of a rank appears as "[rank] line", with Labels::kNone as "line", whole, on
//            the stream it was written to. A last line without an end gets one; a line over 64 KiB
//            comes in pieces
//   input    rank 0 reads ours unless that is a terminal; the others read nothing
//   signals  INT, TERM, HUP, USR1 and USR2 are passed on to the ranks; a second INT kills them
//   a death  a rank that ends other than with 0 is reported: which, how, its last lines. The
//            controller tells the other ranks, so that they fail at once and can say so; those
//            still running after `grace` get TERM, and KILL after as long again
//   the end  nothing of the job outlives this process, even if it is killed
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley::runtime {

// What becomes of the other ranks when one is lost.
enum class WhenLost : std::uint8_t { kEndOthers, kGoOn };

// What stands before each line of output.
enum class Labels : std::uint8_t { kRank, kNone };

struct LaunchOptions {
  int size = 1;                // number of ranks, in [1, 65536]
  std::map<int, double> slow;  // by rank: how many times slower it shall compute, >= 1
  std::string transport;       // as Options::transport; empty: what the environment says
  std::string interface;       // as Options::interface; empty: what the environment says
  Duration timeout{};          // as Options::timeout; zero: what the environment says
  WhenLost when_lost = WhenLost::kEndOthers;
  bool standby = false;  // a second controller, which takes the place of the first if that dies
  Labels labels = Labels::kRank;
  Duration grace = seconds(5);            // between a death and TERM, and between TERM and KILL
  std::string controller_program;         // path of motley-controller; empty: it is searched
  std::vector<std::string> command = {};  // the program (searched in PATH) and its arguments
};

// Runs the job to its end in this thread, which should be the only one. `environment`: as main gets
// it, "NAME=value", null at the end. Returns the exit code: 0 if all ranks ended with 0, else that
// of the rank that failed first, 128 + signal if a signal ended it. With kGoOn 0 if any rank ended
// with 0. Throws kInvalid, before anything is started, if an option is wrong or the program or the
// controller is not found; kIo if the system refuses a process.
int launch(const LaunchOptions& options, const char* const* environment);

}  // namespace motley::runtime
