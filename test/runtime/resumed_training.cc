// A worker for motley_run_test: trains a line in step, saves now and then, goes on from what was
// saved.
//
//   resumed_training FOLDER STEPS [RANK]
//
// Worker RANK of a job kills itself in the middle of a step, once there is a checkpoint. At the end
// worker 0 prints what it went on from, or "from the beginning", the steps made by all runs, and
// the last loss with all its digits.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/error.h"
#include "runtime/file_system.h"
#include "runtime/gradient_trainer.h"
#include "runtime/sharding.h"
#include "test/runtime/line_fit.h"

namespace {

using namespace motley;
using namespace motley::runtime;

struct Arguments {
  const char* folder;
  std::int64_t steps;
  int dying_rank = -1;
};

bool has_checkpoint(const std::string& folder) {
  const std::vector<std::string> names = LocalFiles().list(folder);
  return std::ranges::any_of(names, [](const auto& name) { return name.ends_with(".index"); });
}

void work(const Arguments& arguments) {
  Communicator comm = Communicator::join(Options::from_environment());
  Parameters parameters = line(DType::kFloat32);
  Adam adam(parameters.values(), {});
  GlobalBatches batches(comm.rank(), comm.size(),
                        {.samples = kSamples, .batch = 40, .seed = 7, .micro_batches = 4});
  GradientTrainerOptions options{.learning_rate = {.base = 0.05, .warmup_samples = 200},
                                 .micro_batches = 4,
                                 .autosave = {.folder = arguments.folder, .every_steps = 5}};
  batches.list(options.state);
  GradientTrainer trainer(comm, parameters, adam, options);
  StepReport report;
  const std::int64_t end = trainer.steps() + arguments.steps;
  while (trainer.steps() < end || arguments.dying_rank >= 0) {
    const GlobalBatches::Part part = batches.next();
    report = trainer.step({.sizes = part.sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
      if (comm.rank() == arguments.dying_rank && has_checkpoint(arguments.folder))
        std::raise(SIGKILL);
      return backward(part.samples.subspan(micro.first, micro.size), trainer.values(),
                      trainer.gradients(), micro.weight);
    });
  }
  if (comm.rank() != 0) return;
  fmt::print("went on from {}\n",
             trainer.resumed() ? to_text(*trainer.resumed()) : "the beginning");
  fmt::print("steps {}\nlast loss {}\n", trainer.steps(), report.loss);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 2;
  try {
    Arguments arguments{.folder = argv[1], .steps = std::atoll(argv[2])};
    if (argc == 4) arguments.dying_rank = std::atoi(argv[3]);
    work(arguments);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name(error.code()), error.what());
    return 1;
  }
}
