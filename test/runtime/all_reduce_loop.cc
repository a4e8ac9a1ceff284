// A worker for motley_run_test: averages in a loop until its time is over or an error ends it.
//
//   all_reduce_loop all_reduce|partial_reduce SECONDS
//
// Prints its process number once it has averaged, that it finished, and errors as they are.
#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/partial_reduce.h"

namespace {

using namespace motley;

void say(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

// Calls average(is_over) again and again until it returns true.
template <class Average>
void loop(Clock& clock, Duration time, Average average) {
  average(false);
  say(fmt::format("process {}", getpid()));
  const TimePoint until = clock.now() + time;
  while (!average(clock.now() >= until)) {
  }
  say("finished");
}

void work(const std::string& method, Duration time) {
  Communicator comm = Communicator::join(Options::from_environment());
  std::vector<float> data(10'000, static_cast<float>(comm.rank()));
  if (method == "partial_reduce") {
    PartialReducer reducer(comm, {.group_size = 2});
    std::int64_t step = 0;
    loop(comm.clock(), time, [&](bool is_over) {
      reducer.average(data, step++);
      return is_over;
    });
    reducer.leave();
  } else {
    loop(comm.clock(), time, [&](bool is_over) {  // all end with the same step
      data[0] = is_over ? 1 : 0;
      comm.all_reduce(data, ReduceOp::kAverage).wait();
      return data[0] > 0;
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    work(argv[1], seconds(std::strtod(argv[2], nullptr)));
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: {}\n", name(error.code()), error.what());
    return 1;
  }
}
