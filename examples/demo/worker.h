// examples/demo/worker.h: one worker of one run, started by motley-run.
#pragma once

#include <cstdint>
#include <string>

#include "examples/demo/settings.h"

namespace demo {

struct WorkerTask {
  std::string method;  // "none", "all_reduce", "partial_reduce"
  std::string prefix;  // of the files written
  std::uint64_t seed = 1;
};

// Trains, and writes
//   PREFIX.R.rounds.jsonl  what worker R did when (runtime/metrics.h)
//   PREFIX.R.json          its rows and seconds
//   PREFIX.curve.json      rank 0: log loss and AUC on the test rows over time, of the mean of all
//                          workers' models; the last of the final model, which is that mean. Models
//                          are copied while training, with the clock stopped, and evaluated
//                          afterwards
void run_worker(const Settings& settings, const WorkerTask& task);

}  // namespace demo
