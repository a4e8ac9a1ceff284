// motley-demo: trains a factorization machine with one worker, then with four by all-reduce and by
// partial-reduce, with and without a slow one among them, and shows what partial-reduce gains.
//
//   ./dev demo                       on a9a
//   ./dev demo --data FILE           on any libsvm or libffm file; every fifth row is for testing
//   ./dev demo --data FILE --test FILE
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>

#include "comm/error.h"
#include "comm/version.h"
#include "examples/demo/experiment.h"
#include "examples/demo/report.h"
#include "examples/demo/settings.h"
#include "examples/demo/worker.h"

DEFINE_string(data, "", "training file, libsvm or libffm; empty: a9a");
DEFINE_string(test, "", "test file; empty: every fifth row of --data");
DEFINE_string(out, "build/demo", "folder of the report");
DEFINE_int32(workers, 4, "worker processes");
DEFINE_double(slow, 4, "the last worker is so many times slower");
DEFINE_int32(repeats, 3, "of each experiment; medians are shown");
DEFINE_int32(epochs, 10, "passes of the single worker over the data");
DEFINE_int32(parallel_epochs, 14, "passes of several workers over the data");
DEFINE_uint64(sync_rows, 0, "rows of a local step; 0: as many as make 16 steps an epoch");
DEFINE_double(base_step_ms, 10, "shortest local step, reached by sleeping");
DEFINE_int32(group_size, 2, "workers that partial-reduce averages at a time");
DEFINE_int32(factors, 8, "of the factorization machine");
DEFINE_double(learning_rate, 0.15, "of AdaGrad; multiplied by sqrt(workers)");
DEFINE_string(worker, "", "be a worker with this synchronizer (set by the demo itself)");
DEFINE_string(prefix, "", "of a worker's files");
DEFINE_uint64(seed, 1, "of a worker's data order and initial model");

DECLARE_bool(help);

namespace demo {
namespace {

constexpr const char* kUsage =
    R"(motley-demo [flags]: trains a factorization machine with one worker, then with several by
all-reduce and by partial-reduce, with and without a slow one, and shows what partial-reduce gains.
  --data FILE           to train on, libsvm or libffm (a9a)
  --test FILE           to test on (every fifth row of --data)
  --out FOLDER          of the report (build/demo)
  --workers N           worker processes (4)
  --slow X              the last worker is so many times slower (4)
  --repeats N           of each experiment; medians are shown (3)
  --epochs N            passes of the single worker over the data (10)
  --parallel_epochs N   passes of several workers over the data (14)
  --sync_rows N         rows of a local step (as many as make 16 steps an epoch)
  --base_step_ms X      shortest local step, reached by sleeping (10)
  --group_size P        workers that partial-reduce averages at a time (2)
  --factors K           of the factorization machine (8)
  --learning_rate X     of AdaGrad; multiplied by the root of the number of workers (0.15)
)";

Settings settings_from_flags() {
  Settings settings{.data = FLAGS_data,
                    .test = FLAGS_test,
                    .out = FLAGS_out,
                    .workers = FLAGS_workers,
                    .slow = FLAGS_slow,
                    .repeats = FLAGS_repeats,
                    .epochs = FLAGS_epochs,
                    .parallel_epochs = FLAGS_parallel_epochs,
                    .sync_rows = FLAGS_sync_rows,
                    .base_step = FLAGS_base_step_ms / 1e3,
                    .group_size = FLAGS_group_size,
                    .factors = FLAGS_factors,
                    .learning_rate = FLAGS_learning_rate};
  if (settings.data.empty()) {
    settings.data = MOTLEY_DEMO_DATA "/a9a";
    settings.test = MOTLEY_DEMO_DATA "/a9a.t";
  }
  if (settings.workers < 2 || settings.repeats < 1) {
    throw motley::Error(motley::ErrorCode::kInvalid,
                        fmt::format("demo: {} workers and {} repeats. Use at least 2 and 1.",
                                    settings.workers, settings.repeats));
  }
  return settings;
}

void introduce(const Settings& s) {
  const Data data = load(s);
  fmt::print(
      "FM (k = {}) on {}: {} rows to train, {} to test. AdaGrad, learning rate {:g} (one worker), "
      "{:g} (several).\n"
      "{} worker processes; a local step is {} rows and takes at least {:g} ms, reached by "
      "sleeping;"
      "\na slow worker takes {:g} times as long. Averaging is inside the clock, evaluation outside."
      "\npartial-reduce averages {} workers at a time; when the fast are done all stop, and the "
      "mean "
      "of\nall models, inside the clock, is the final one. Curves are of the mean of all "
      "workers' models at equal times.\n\n",
      s.factors, s.data, data.train.rows(), data.test.rows(), s.learning_rate,
      s.learning_rate * std::sqrt(s.workers), s.workers, rows_per_step(s, data.train.rows()),
      1e3 * s.base_step, s.slow, s.group_size);
}

void run_into(const Settings& settings, const Programs& programs, Result& result, int repeat) {
  const Experiment& experiment = result.experiment;
  fmt::print("repeat {} of {}: {}, {} … ", repeat + 1, settings.repeats, experiment.title,
             experiment.slow ? "one slow" : "none slow");
  std::fflush(stdout);
  result.runs.push_back(run_once(settings, programs, experiment, repeat));
  const CurvePoint& last = result.runs.back().curve.back();
  fmt::print("{:.2f} s, log loss {:.5f}\n", last.seconds, last.log_loss);
}

void run_demo(const Settings& settings, const Programs& programs) {
  std::filesystem::create_directories(settings.out + "/runs");
  introduce(settings);
  Report report{.settings = settings};
  report.single.experiment = {.title = "single worker", .method = "none", .key = "single"};
  for (const int slow : {0, 1}) {
    const std::string suffix = slow == 1 ? "-slow" : "";
    report.all_reduce[slow].experiment = {.title = "all-reduce",
                                          .method = "all_reduce",
                                          .key = "all-reduce" + suffix,
                                          .workers = settings.workers,
                                          .slow = slow == 1};
    report.partial_reduce[slow].experiment = {.title = "partial-reduce",
                                              .method = "partial_reduce",
                                              .key = "partial-reduce" + suffix,
                                              .workers = settings.workers,
                                              .slow = slow == 1};
  }
  for (int repeat = 0; repeat < settings.repeats; ++repeat) {
    for (Result* result : {&report.single, &report.all_reduce[1], &report.partial_reduce[1],
                           &report.all_reduce[0], &report.partial_reduce[0]}) {
      run_into(settings, programs, *result, repeat);
    }
  }
  fmt::print("{}", to_text(report));
  const std::string page = settings.out + "/index.html";
  std::ofstream file(page);
  file << to_html(report);
  if (!file.flush()) motley::throw_errno("write " + page);
  fmt::print("curves and timelines: {}\n", page);
}

}  // namespace
}  // namespace demo

int main(int argc, char** argv, char** environment) {
  gflags::ParseCommandLineNonHelpFlags(&argc, &argv, true);
  if (FLAGS_help) {
    fmt::print("{}", demo::kUsage);
    return 0;
  }
  gflags::SetVersionString(motley::version_text());
  gflags::HandleCommandLineHelpFlags();
  if (argc > 1) {
    fmt::print(stderr, "motley-demo: \"{}\" is no flag. See --help.\n", argv[1]);
    return 2;
  }
  try {
    const demo::Settings settings = demo::settings_from_flags();
    if (!FLAGS_worker.empty()) {
      demo::run_worker(settings,
                       {.method = FLAGS_worker, .prefix = FLAGS_prefix, .seed = FLAGS_seed});
    } else {
      demo::run_demo(settings, {.demo = std::filesystem::canonical("/proc/self/exe"),
                                .run = MOTLEY_RUN,
                                .controller = MOTLEY_CONTROLLER,
                                .environment = environment});
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "motley-demo: {}\n", error.what());
    return 1;
  }
  return 0;
}
