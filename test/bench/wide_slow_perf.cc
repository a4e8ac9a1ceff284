// Four workers of which one is four times slower (by sleeping): the time that all-reduce and
// partial-reduce take until the model of the first worker has a log loss on the test file. FM with
// 8 factors on a9a; workers are threads. Evaluation does not count.
//   wide_slow_perf [-train F] [-test F] [-target X] [-slow X] [-base_ms X] [-seeds N]
// With -shard features are spread over the workers, in step or each at its own pace; then the time
// counts to the end of the epoch, with evaluations.
//   wide_slow_perf -shard [-train_rows N] …
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/error.h"
#include "comm/local.h"
#include "runtime/trainer.h"
#include "test/bench/wide/bench_main.h"
#include "wide/reader.h"
#include "wide/sharded_run.h"
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
DEFINE_bool(shard, false, "spread features over the workers");
DEFINE_uint64(train_rows, 1'000'000, "with -shard: rows of an epoch, at most");
DEFINE_uint64(hot, 64, "with -shard: features that every worker has");
DEFINE_int32(longest_epochs, 30, "of a run with -shard");
DEFINE_bool(epochs, false, "print the log loss after each epoch of -shard");

namespace motley::wide {
namespace {

constexpr int kWorkers = 4;
constexpr int kLookEvery = 4;  // rounds

struct Outcome {
  double seconds = 0;      // to the target; 0: not reached
  std::int64_t steps = 0;  // of the first worker
  double loss = 0;         // in the end
};

void print(int seed, const std::string& label, const Outcome& o) {
  fmt::print("seed {}  {:26} {:6.2f} s  {:5} steps  log loss {:.5f}{}\n", seed, label, o.seconds,
             o.steps, o.loss, o.seconds > 0 ? "" : "  NOT REACHED");
  std::fflush(stdout);
}

Outcome train(const char* method, const runtime::SynchronizerOptions& options, const Dataset& train,
              const Dataset& test, unsigned seed) {
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
    const auto synchronizer = runtime::make_synchronizer(method, comm, options);
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

Outcome train_sharded(const ShardOptions& given, const Dataset& train, const Dataset& test,
                      unsigned seed) {
  Outcome outcome;
  run_local(kWorkers, [&](Communicator& comm) {
    bool over = false;  // at the same epoch on all: they have the same model then
    TrainOptions options{.model = {.kind = ModelKind::kFm, .factors = FLAGS_k},
                         .epochs = 100,
                         .prior_factors = 0,
                         .average = 0,
                         .batch_rows = FLAGS_rows,
                         .patience = 100,
                         .seed = seed};
    const TimePoint start = comm.clock().now();
    std::int64_t steps = 0;
    options.on_epoch = [&](const EpochReport& report) {
      const double loss = report.validation->loss;
      const double now = to_seconds(comm.clock().now() - start);
      over = loss <= FLAGS_target || report.epoch == FLAGS_longest_epochs;
      if (comm.rank() != 0) return;
      outcome = {loss <= FLAGS_target ? now : 0, steps, loss};
      if (FLAGS_epochs) fmt::print("  epoch {:2}  {:6.2f} s  {:.5f}\n", report.epoch, now, loss);
    };
    ShardOptions shards = given;
    const double times = comm.rank() == kWorkers - 1 ? FLAGS_slow : 1;
    shards.on_compute = [&](std::int64_t step) {
      steps = step + 1;
      comm.clock().sleep_until(comm.clock().now() + seconds(times * FLAGS_base_ms / 1e3));
    };
    ShardedRun run(comm, train, test, options, shards);
    while (!over && run.next_step()) continue;
    run.gather_state();  // in which all meet: a keeper answers until all are done
  });
  return outcome;
}

struct Contender {
  std::string label;
  std::function<Outcome(unsigned seed)> train;
};

// In turns, with the same seeds, and over the time of the first.
void compare(const Dataset& data, const std::vector<Contender>& contenders) {
  fmt::print(
      "{} rows, {} workers, the last {} times slower, {} rows and {} ms a step; log loss {}\n",
      data.rows(), kWorkers, FLAGS_slow, FLAGS_rows, FLAGS_base_ms, FLAGS_target);
  std::vector<double> total(contenders.size());
  for (int seed = 1; seed <= FLAGS_seeds; ++seed) {
    for (std::size_t c = 0; c < total.size(); ++c) {
      const Outcome o = contenders[c].train(static_cast<unsigned>(seed));
      print(seed, contenders[c].label, o);
      total[c] += o.seconds > 0 ? o.seconds : FLAGS_longest_s;
    }
  }
  for (std::size_t c = 0; c < total.size(); ++c)
    fmt::print("{:26} {:6.2f} s on average, {:.2f} of {}\n", contenders[c].label,
               total[c] / FLAGS_seeds, total[c] / total[0], contenders[0].label);
}

void run_sharded() {
  Dataset data = read_file(FLAGS_train);
  const Dataset test = read_file(FLAGS_test);
  std::vector<std::uint64_t> rows(std::min<std::size_t>(data.rows(), FLAGS_train_rows));
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  data = rows_of(data, rows);
  ShardOptions step{.hot = FLAGS_hot, .copies = 1}, pairs = step, threes = step;
  pairs.partial = PartialOptions{.group_size = 2};
  threes.partial = PartialOptions{.group_size = 3};
  const auto by = [&](const ShardOptions& options) {
    return [&, options](unsigned seed) { return train_sharded(options, data, test, seed); };
  };
  compare(data,
          {{"in step", by(step)}, {"own pace, P = 2", by(pairs)}, {"own pace, P = 3", by(threes)}});
}

void run() {
  if (FLAGS_shard) return run_sharded();
  const Dataset data = read_file(FLAGS_train), test = read_file(FLAGS_test);
  runtime::SynchronizerOptions pairs{.group_size = 2}, adapted{.group_size = 0};
  adapted.partial.weighting = {.rule = WeightRule::kExponential, .lambda = 0.5};
  const auto by = [&](const char* name, const runtime::SynchronizerOptions& options) {
    return [&, name, options](unsigned seed) { return train(name, options, data, test, seed); };
  };
  compare(data, {{"all_reduce", by("all_reduce", {})},
                 {"partial_reduce, P = 2", by("partial_reduce", pairs)},
                 {"partial_reduce, P adapted", by("partial_reduce", adapted)}});
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
