// Data-parallel training in full: each worker fits y = 3 a - 2 b + 1 on rows of its own, and the
// models are averaged after each step.
//
//   motley-run -n 4 -- ./04_data_parallel     ranks are processes
//   ./04_data_parallel                        ranks are four threads
#include <fmt/core.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"
#include "runtime/optimizer.h"
#include "runtime/parameter.h"
#include "runtime/synchronizer.h"
#include "runtime/trainer.h"

using motley::runtime::AdaGrad;
using motley::runtime::Parameters;

namespace {

// Squared error of one row, its gradient added to the model's.
void backward(Parameters& model, std::array<float, 2> x, float y) {
  const auto weight = model.values("weight").as<float>();
  const float error = weight[0] * x[0] + weight[1] * x[1] + model.values("bias").as<float>()[0] - y;
  const auto gradient = model.gradients("weight").as<float>();
  for (int i = 0; i < 2; ++i) gradient[i] += 2 * error * x[i];
  model.gradients("bias").as<float>()[0] += 2 * error;
}

void train(motley::Communicator& comm) {
  Parameters model({{"weight", {2}}, {"bias", {}}}, motley::DType::kFloat32);
  AdaGrad optimizer(model.values(), {.learning_rate = 0.5});
  std::mt19937_64 random(static_cast<std::uint64_t>(comm.rank()));  // each worker's own rows
  std::uniform_real_distribution<float> uniform(-1, 1);

  const auto synchronizer = motley::runtime::make_synchronizer("all_reduce", comm, {});
  motley::runtime::Trainer trainer(comm, *synchronizer, {.slow = comm.options().slow});
  trainer.run(model.values(), [&](std::int64_t step) {
    if (step == 200) return false;
    model.zero_gradients();
    for (int row = 0; row < 8; ++row) {
      const std::array<float, 2> x = {uniform(random), uniform(random)};
      backward(model, x, 3 * x[0] - 2 * x[1] + 1);
    }
    optimizer.update(model.values(), model.gradients());
    return true;
  });
  const auto weight = model.values().as<float>();
  if (std::abs(weight[0] - 3) + std::abs(weight[1] + 2) + std::abs(weight[2] - 1) > 0.1F) {
    throw motley::Error(motley::ErrorCode::kMismatch,
                        "04_data_parallel: not fitted. This is a bug.");
  }
  if (comm.rank() == 0) {
    fmt::print("y = {:.3f} a + {:.3f} b + {:.3f}\n", weight[0], weight[1], weight[2]);
  }
}

}  // namespace

int main() {
  try {
    const motley::Options options = motley::Options::from_environment();  // what motley-run has set
    if (options.size > 1) {
      motley::Communicator comm = motley::Communicator::join(options);
      train(comm);
    } else {
      motley::run_local(4, train);
    }
  } catch (const motley::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
