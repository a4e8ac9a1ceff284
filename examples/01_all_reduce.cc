// Sums a vector over all ranks: every rank gets the same sum.
//
//   motley-run -n 4 -- ./01_all_reduce     ranks are processes
//   ./01_all_reduce                        ranks are four threads
#include <cstdio>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"

using namespace motley;

void sum(Communicator& comm) {
  std::vector<float> x(1000, static_cast<float>(comm.rank() + 1));
  comm.all_reduce(x, ReduceOp::kSum).wait();
  std::printf("rank %d of %d: the sum of 1 to %d is %g\n", comm.rank(), comm.size(), comm.size(),
              x[0]);
}

int main() {
  try {
    const Options options = Options::from_environment();  // what motley-run has set
    if (options.size > 1) {
      Communicator comm = Communicator::join(options);
      sum(comm);
    } else {
      run_local(4, sum);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
