// examples/demo/experiment.h: the runs of the demo, their results and what follows from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "examples/demo/settings.h"
#include "runtime/trainer.h"

namespace demo {

struct Experiment {
  std::string title;   // "all-reduce"
  std::string method;  // as a synchronizer's name
  std::string key;     // of file names
  int workers = 1;
  bool slow = false;  // one worker is slow
};

// On the test rows.
struct CurvePoint {
  double seconds = 0;
  double log_loss = 0;      // of the mean of all workers' models at that time
  double auc = 0;           // of the same
  double own_log_loss = 0;  // of worker 0's model
};
using LossOf = double CurvePoint::*;

struct WorkerResult {
  std::uint64_t rows = 0;
  double seconds = 0;
  std::vector<motley::runtime::Round> rounds;
};

struct RunResult {
  std::vector<CurvePoint> curve;  // ascending in time; the last is the final model
  std::vector<WorkerResult> workers;

  double best_log_loss() const;
  // When the curve first reached `target`.
  std::optional<double> seconds_to(double target, LossOf loss = &CurvePoint::log_loss) const;
  double rows_per_second() const;
};

struct Result {
  Experiment experiment;
  std::vector<RunResult> runs;  // one a repeat

  // Medians over the runs.
  double log_loss() const;  // of the final model
  double auc() const;
  double rows_per_second() const;
  // None if most runs never got there.
  std::optional<double> seconds_to(double target, LossOf loss = &CurvePoint::log_loss) const;
  std::vector<double> waiting_shares() const;  // of each worker
};

// The programs that a run takes.
struct Programs {
  std::string demo;
  std::string run;
  std::string controller;
  char** environment = nullptr;  // as main gets it
};

// Runs `experiment` once, with worker processes under motley-run, and reads what they wrote. Throws
// motley::Error if it fails, with the end of its log.
RunResult run_once(const Settings& settings, const Programs& programs, const Experiment& experiment,
                   int repeat);

double median(std::vector<double> values);

}  // namespace demo
