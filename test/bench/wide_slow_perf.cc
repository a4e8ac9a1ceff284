// Four workers of which one is four times slower (by sleeping): the time that all-reduce and
// partial-reduce take until the model of the first worker has a log loss on the test file. FM with
// 8 factors on a9a; workers are threads. Evaluation does not count.
//   wide_slow_perf [-train F] [-test F] [-target X] [-slow X] [-base_ms X] [-seeds N]
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/error.h"
#include "comm/local.h"
#include "runtime/trainer.h"
#include "test/bench/wide/bench_main.h"
#include "wide/reader.h"
#include "wide/trainer.h"

DEFINE_string(train, MOTLEY_A9A "/a9a", "rows to train on");
DEFINE_string(test, MOTLEY_A9A "/a9a.t", "rows whose log loss is the target's");
DEFINE_double(target, 0.325, "log loss to reach");
DEFINE_double(slow, 4, "times that the last worker is slower");
DEFINE_double(base_ms, 20, "of a step of the others");
DEFINE_uint64(rows, 100, "of a worker in a step");
DEFINE_int32(seeds, 3, "runs of each method");
DEFINE_int32(k, 8, "factors");
DEFINE_double(longest_s, 60, "of a run");

namespace motley::wide {
namespace {

constexpr int kWorkers = 4;
constexpr int kLookEvery = 4;  // rounds

struct Method {
  const char* label;
  const char* name;
  runtime::SynchronizerOptions options;
};

struct Outcome {
  double seconds = 0;      // to the target; 0: not reached
  std::int64_t steps = 0;  // of the first worker
  double loss = 0;         // in the end
};

Outcome train(const Method& method, const Dataset& train, const Dataset& test, unsigned seed) {
  Outcome outcome;
  std::atomic<bool> over = false;
  run_local(kWorkers, [&](Communicator& comm) {
    TrainingRun run(train, std::nullopt,
                    {.model = {.kind = ModelKind::kFm, .factors = FLAGS_k},
                     .epochs = 100,
                     .sync_rows = FLAGS_rows,
                     .seed = seed,
                     .rank = comm.rank(),
                     .size = comm.size()});
    const Samples samples = run.model().prepare(test);
    const auto synchronizer = runtime::make_synchronizer(method.name, comm, method.options);
    runtime::Trainer trainer(comm, *synchronizer,
                             {.slow = comm.rank() == kWorkers - 1 ? FLAGS_slow : 1,
                              .base_step = seconds(FLAGS_base_ms / 1e3),
                              .when_alone = runtime::WhenAlone::kStop});
    trainer.on_round([&](const runtime::Round& round) {
      if (comm.rank() != 0 || over || round.step % kLookEvery != 0) return;
      const double loss = evaluate(run.model().scores(samples), samples.labels).loss;
      outcome = {0, round.step, loss};
      if (loss <= FLAGS_target) outcome.seconds = to_seconds(round.end);
      over = loss <= FLAGS_target || to_seconds(round.end) > FLAGS_longest_s;
    });
    trainer.run(run.state(), [&](std::int64_t) { return !over && run.next_step(); });
  });
  return outcome;
}

void run() {
  const Dataset data = read_file(FLAGS_train), test = read_file(FLAGS_test);
  runtime::SynchronizerOptions pairs{.group_size = 2}, adapted{.group_size = 0};
  adapted.partial.weighting = {.rule = WeightRule::kExponential, .lambda = 0.5};
  const Method methods[] = {{"all_reduce", "all_reduce", {}},
                            {"partial_reduce, P = 2", "partial_reduce", pairs},
                            {"partial_reduce, P adapted", "partial_reduce", adapted}};
  fmt::print(
      "{} rows, {} workers, the last {} times slower, {} rows and {} ms a step; log loss {}\n",
      data.rows(), kWorkers, FLAGS_slow, FLAGS_rows, FLAGS_base_ms, FLAGS_target);
  std::vector<double> total(std::size(methods));
  for (int seed = 1; seed <= FLAGS_seeds; ++seed) {
    for (std::size_t m = 0; m < total.size(); ++m) {
      const Outcome o = train(methods[m], data, test, static_cast<unsigned>(seed));
      fmt::print("seed {}  {:26} {:6.2f} s  {:5} steps  log loss {:.5f}{}\n", seed,
                 methods[m].label, o.seconds, o.steps, o.loss,
                 o.seconds > 0 ? "" : "  NOT REACHED");
      std::fflush(stdout);
      total[m] += o.seconds > 0 ? o.seconds : FLAGS_longest_s;
    }
  }
  for (std::size_t m = 0; m < total.size(); ++m)
    fmt::print("{:26} {:6.2f} s on average, {:.2f} of all_reduce\n", methods[m].label,
               total[m] / FLAGS_seeds, total[m] / total[0]);
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
