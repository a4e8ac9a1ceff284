// Workers of unequal speed minimise (x - 3)^2 together. With all-reduce each step would take as
// long as the slowest worker's; with partial-reduce a worker averages with whoever is ready.
//
//   motley-run -n 4 --slow 3:4 -- ./02_partial_reduce     ranks are processes, one of them slow
//   ./02_partial_reduce                                   ranks are four threads
//
// Three lines change against all-reduce: the reducer, its average() in place of
// comm.all_reduce(x, ReduceOp::kAverage).wait(), and leave() at the end. Here average() is in three
// lines, too: what is complete of a step, as the last layers after a backward pass has gone through
// them, is averaged while the rest is computed.
#include <cmath>
#include <cstdio>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"
#include "comm/partial_reduce.h"

using namespace motley;

void train(Communicator& comm) {
  constexpr int kSteps = 50;
  constexpr float kRate = 0.1F;
  const Duration compute = seconds(0.001 * comm.options().slow);  // what a real step would take
  std::vector<float> x(100, static_cast<float>(comm.rank()));

  PartialReducer reducer(comm, {.group_size = 2, .piece_bytes = 200});
  Duration waiting{};
  for (int step = 0; step < kSteps; ++step) {
    reducer.begin(x, step);
    for (const std::size_t first : {50, 0}) {  // a local step: the gradient is 2 (x - 3)
      for (std::size_t i = first; i < first + 50; ++i) x[i] -= kRate * 2 * (x[i] - 3);
      comm.clock().sleep_until(comm.clock().now() + compute / 2);
      reducer.ready(first, 50);
    }
    waiting += reducer.finish().waiting;
  }
  reducer.leave();

  if (std::abs(x[0] - 3) > 0.01F) {
    throw Error(ErrorCode::kMismatch, "02_partial_reduce: x is not near 3. This is a bug.");
  }
  std::printf("rank %d of %d: x = %.4f after %d steps, %.1f ms of them waiting\n", comm.rank(),
              comm.size(), x[0], kSteps, 1e3 * to_seconds(waiting));
}

int main() {
  try {
    const Options options = Options::from_environment();  // what motley-run has set
    if (options.size > 1) {
      Communicator comm = Communicator::join(options);
      train(comm);
    } else {
      run_local(4, train);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
