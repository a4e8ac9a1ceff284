// test/bench/partial/trial.h: one training of one method among workers of unequal speed, on the
// communicator of this process, which is one of the workers.
//
// Workers train a small classifier of handwritten digits on batches of their own, by steps that are
// as long as a pattern says (pattern.h). Models are copied after each step, running means and
// variances of BatchNorm with them, and evaluated when all is over, outside of the clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/images.h"
#include "runtime/layers.h"

namespace motley::bench {

// What is learnt.
struct Problem {
  std::string name;
  std::vector<runtime::LayerOptions> layers;
  int points = 120;  // of a curve
  runtime::Images train;
  runtime::Images test;  // the rows of `train` on which the loss is looked at
  std::size_t batch = 16;
  double target = 0.5;           // of the loss
  double base_step = 0.01;       // seconds
  std::int64_t equal_steps = 0;  // loss_at_samples: after so many steps, in the mean over workers
  double momentum = 0;
  double l2 = 0;
};
// "linear", "small" (64-32-10 with ReLU), and "mlp" and "convolutional" of runtime/layers.h, with
// BatchNorm. Throws kInvalid for any other.
Problem make_problem(const std::string& name, const std::string& digits);

struct Trial {
  std::string pattern;
  std::string method;  // method.h
  double learning_rate = 0.1;
  std::uint64_t seed = 1;
  double steps = 100;  // base steps that it may take
  // If above 0: all workers together make so many steps for each of them, the faster more of them,
  // and the learning rate falls to 0 meanwhile: for losses at equal samples.
  std::int64_t samples = 0;
  std::string folder;  // of this trial; rounds are written there if it is not empty
};

// The same on all workers. Times in base steps.
struct Outcome {
  std::optional<double> mean_model;       // until the mean of all models had the target's loss
  std::optional<double> worker_model;     // until half of the workers' own models had it
  std::optional<double> loss_at_samples;  // of the mean of all models
  double final_loss = 0;                  // of what finish() left
  double steps = 0;                       // made by a worker, in the mean
  double longest_round = 0;               // of any worker, from one step's end to the next one's
  double waiting = 0;                     // share of the time, in the mean over workers
};

// `shared` is a folder that all workers see.
Outcome run_trial(Communicator& comm, const Problem& problem, const Trial& trial,
                  const std::string& shared);

}  // namespace motley::bench
