// comm/options.h: every option of the library, with its default, unit and environment name.
// Read once, printed at start, passed down: no other file reads the environment.
#pragma once

#include <cstddef>
#include <string>

#include "comm/clock.h"

namespace motley {

struct Options {
  // --- who we are; set by motley-run ------------------------------------------------------------
  int rank = 0;            // MOTLEY_RANK           this process, in [0, size)
  int size = 1;            // MOTLEY_SIZE           number of ranks
  std::string controller;  // MOTLEY_CONTROLLER     "tcp://host:port"; empty: a single rank
  std::string token;  // MOTLEY_TOKEN          secret of the job; the controller admits no other
  double slow = 1;    // MOTLEY_SLOW           this rank computes so many times slower (tests, demo)

  // --- how we talk ------------------------------------------------------------------------------
  std::string transport = "auto";  // MOTLEY_TRANSPORT      auto, shm or ucx
  std::string algorithm = "auto";  // MOTLEY_ALGORITHM      auto, direct, ring, halving_doubling
  Duration timeout = seconds(30);  // MOTLEY_TIMEOUT        seconds a call may take
  Duration join_timeout =
      seconds(60);                    // MOTLEY_JOIN_TIMEOUT   seconds to wait for all ranks to join
  Duration heartbeat = seconds(0.2);  // MOTLEY_HEARTBEAT      seconds between signs of life
  Duration lease =
      seconds(1.5);  // MOTLEY_LEASE          seconds of silence after which a rank is dead
  std::size_t segment_bytes = 128 << 10;  // MOTLEY_SEGMENT_BYTES  largest message of a collective
  int log_level = 1;  // MOTLEY_LOG_LEVEL      0 debug, 1 info, 2 warning, 3 error

  // Defaults overridden by the environment. Throws kInvalid, naming variable, value and range.
  static Options from_environment();
  // One line per option: name, value, environment name.
  std::string to_text() const;
};

}  // namespace motley
