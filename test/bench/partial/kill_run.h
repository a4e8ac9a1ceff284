// test/bench/partial/kill_run.h: a training by partial-reduce in which workers and the controller
// are killed and stopped all the time, beside the same training left in peace.
//
// Workers are processes that learn the digits by steps that are slept; the controller is one, too,
// and is started again at its address each time that it was killed. A worker that is killed does
// not come back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley::bench {

struct KillRun {
  int workers = 8;
  std::string method = "partial_reduce:2";  // method.h
  std::string digits;
  double learning_rate = 0.4;
  Duration base_step = seconds(0.025);
  Duration length = seconds(10);  // of the training
  Duration every = {};            // from one fault to the next; zero: none
  Duration stop = seconds(0.6);   // how long who is stopped stays so
  Duration away = seconds(0.5);   // how long there is no controller
  Duration lease = seconds(1.5);
  int survivors = 4;  // so many workers are not killed
  std::uint64_t seed = 1;
};

struct KillReport {
  int worker_kills = 0;
  int worker_stops = 0;
  int controller_kills = 0;
  int controller_stops = 0;
  std::int64_t steps = 0;
  double worker_seconds = 0;  // that workers lived, without those in which they were stopped
  double rate() const { return static_cast<double>(steps) / worker_seconds; }
  double loss = 0;               // the worst of the survivors' final models
  double longest_halt = 0;       // seconds in which a living worker made no step; stops left out
  int most_new_descriptors = 0;  // of a survivor, from a quarter of the time to its end
  double most_new_megabytes = 0;
  std::vector<std::string> failures;  // survivors that did not end well, or not in time
};

// To be called while this process has one thread.
KillReport run_kills(const KillRun& run);

}  // namespace motley::bench
