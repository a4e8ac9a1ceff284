// examples/demo/settings.h: what the demo trains, on what, and how fast its workers are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "wide/dataset.h"

namespace demo {

struct Settings {
  std::string data;  // training file, libsvm or libffm
  std::string test;  // test file; empty: every fifth row of the training file
  std::string out;   // folder of the report
  int workers = 4;
  double slow = 4;           // the last worker is so many times slower
  int repeats = 3;           // of each experiment, each with a seed of its own; medians are shown
  int epochs = 10;           // passes of the single worker over the data
  int parallel_epochs = 14;  // and of several workers
  std::uint64_t sync_rows = 0;  // rows of a local step; 0: as many as make 16 steps an epoch
  double base_step = 0.01;      // seconds: shortest local step, reached by sleeping
  int group_size = 2;           // workers that partial-reduce averages at a time
  int factors = 8;              // of the factorization machine
  double learning_rate = 0.15;  // of AdaGrad; TrainingRun multiplies it by sqrt(workers)
};

struct Data {
  motley::wide::Dataset train;
  motley::wide::Dataset test;
};
// Reads the files, or splits the one. Throws motley::Error.
Data load(const Settings& settings);

// Rows of a local step, settled from the number of training rows.
std::size_t rows_per_step(const Settings& settings, std::size_t rows);

}  // namespace demo
