// Time to a loss of partial-reduce and its rivals among workers of unequal speed: processes of this
// host, whose steps are lengthened by sleeping (partial/pattern.h).
//
//   partial_perf --quick                           three patterns, one seed
//   partial_perf --results p.jsonl --seconds 200   all patterns and methods; again, to go on
//   partial_perf --results p.jsonl --seconds 0     tables of what there is
//   partial_perf --workers 4 --patterns one_x4,half_x4 --methods all_reduce,partial_reduce:3
//   partial_perf --problem linear --samples 600 --step_ms 3     losses at equal samples
//
// Learning rates are chosen per method from one grid, on `--tune` patterns with a seed of their
// own. Then repeats follow one another, each with all patterns and methods, so that a change of the
// machine's load meets all alike. Times are in base steps: 100 is what 100 steps take without
// averaging.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <sstream>

#include "comm/error.h"
#include "test/bench/partial/method.h"
#include "test/bench/partial/pattern.h"
#include "test/bench/partial/results.h"
#include "test/support/forked_ranks.h"

DEFINE_int32(workers, 8, "processes");
DEFINE_string(problem, "small", "linear, small, mlp or convolutional");
DEFINE_string(patterns, "", "comma-separated; empty: all of partial/pattern.h but quota_x4");
DEFINE_string(methods,
              "all_reduce,local_sgd:4,backup_workers:1,eager_solo:10,eager_majority,ad_psgd,"
              "wait_avoiding:4,parameter_server:4,partial_reduce:2,partial_reduce:3,"
              "partial_reduce:4,partial_reduce:0",
              "comma-separated, as partial/method.h says");
DEFINE_string(rates, "0.1,0.2,0.4,0.8", "grid of learning rates");
DEFINE_string(tune, "homogeneous,one_x4", "patterns on which rates are chosen; empty: --rate");
DEFINE_double(rate, 0.3, "learning rate without tuning");
DEFINE_int32(seeds, 5, "repeats");
DEFINE_bool(quick, false, "three patterns, one seed, no tuning");
DEFINE_double(step_ms, 10, "base step");
DEFINE_double(target, 0.5, "loss to be reached");
DEFINE_double(steps, 150, "base steps of a trial; times the slowness, for who waits for all");
DEFINE_int32(equal_steps, 60, "the loss is also compared after so many steps of a worker");
DEFINE_int32(samples, 0, "if above 0: losses after so many steps of a worker, rates falling to 0");
DEFINE_double(momentum, 0, "of the workers' SGD");
DEFINE_string(results, "", "file of results, to go on with and to add to");
DEFINE_double(seconds, 1e6, "no trial begins later");
DEFINE_string(rounds, "", "folder for the rounds of all workers, as JSON lines");
DEFINE_string(digits, MOTLEY_DIGITS, "images to learn");

namespace motley::bench {
namespace {

constexpr int kTuningSeed = 1000;

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<std::string> chosen_patterns() {
  if (FLAGS_quick && FLAGS_patterns.empty()) return {"homogeneous", "one_x4", "half_x4"};
  if (!FLAGS_patterns.empty()) return split(FLAGS_patterns);
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns()) {
    if (!pattern.name.starts_with("quota")) names.push_back(pattern.name);
  }
  return names;
}

Problem problem_from_flags() {
  Problem problem = make_problem(FLAGS_problem, FLAGS_digits);
  problem.target = FLAGS_target;
  problem.base_step = FLAGS_step_ms / 1e3;
  problem.equal_steps = FLAGS_equal_steps;
  problem.momentum = FLAGS_momentum;
  return problem;
}

// Who waits for all, or is bounded by the slowest, gets as many times longer as that is slower.
double steps_for(const std::string& method, const std::string& pattern) {
  const double slowest = find_pattern(pattern).slowest;
  return FLAGS_steps * (waits_for_slow(parse_method(method)) ? slowest : std::min(slowest, 2.0));
}

void print_trial(const Result& result) {
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.1f}", *value) : std::string("-");
  };
  const Outcome& outcome = result.outcome;
  fmt::print(stderr,
             "{} {} rate {} seed {}: mean model {}, worker model {}, {:.0f} steps, loss {:.4f}, "
             "longest round {:.1f}, waiting {:.2f}\n",
             result.trial.pattern, result.trial.method, result.trial.learning_rate,
             result.trial.seed, text(outcome.mean_model), text(outcome.worker_model), outcome.steps,
             outcome.final_loss, outcome.longest_round, outcome.waiting);
}

// Time is up, as worker 0 sees it.
struct Stop {};

class Bench {
 public:
  Bench(Communicator& comm, const Problem& problem, const Results& results, std::string shared)
      : comm_(comm),
        problem_(problem),
        results_(results),
        shared_(std::move(shared)),
        methods_(split(FLAGS_methods)),
        begin_(comm.clock().now()) {}

  void run() {
    try {
      for (const std::string& method : methods_) rates_[method] = tuned(method);
      const int seeds = FLAGS_quick ? 1 : FLAGS_seeds;
      for (int seed = 1; seed <= seeds; ++seed) {
        for (const std::string& pattern : chosen_patterns()) {
          for (const std::string& method : methods_) {
            taken_.push_back(trial(pattern, method, rates_[method], seed));
          }
        }
      }
    } catch (const Stop&) {
      if (comm_.rank() == 0) fmt::print(stderr, "time is up; run again to go on\n");
    }
    if (comm_.rank() == 0) print();
  }

 private:
  Result trial(const std::string& pattern, const std::string& method, double rate, int seed) {
    const std::string name = fmt::format("{}.{}.seed{}", pattern, method, seed);
    Result result{.problem = problem_.name,
                  .workers = comm_.size(),
                  .trial = {.pattern = pattern,
                            .method = method,
                            .learning_rate = rate,
                            .seed = static_cast<std::uint64_t>(seed),
                            .steps = steps_for(method, pattern),
                            .samples = FLAGS_samples,
                            .folder = FLAGS_rounds.empty() ? "" : FLAGS_rounds + "/" + name},
                  .outcome = {}};
    const Result* known = results_.find(problem_.name, comm_.size(), result.trial);
    if (known != nullptr) return *known;
    std::vector<int> over(1, comm_.clock().now() - begin_ > seconds(FLAGS_seconds) ? 1 : 0);
    comm_.broadcast(over, 0).wait();
    if (over[0] != 0) throw Stop();
    result.outcome = run_trial(comm_, problem_, result.trial, shared_);
    if (comm_.rank() == 0) {
      results_.add(result);
      print_trial(result);
    }
    return result;
  }

  // The rate with the shortest times to the target, or the lowest losses, summed over patterns.
  double tuned(const std::string& method) {
    if (FLAGS_quick || FLAGS_tune.empty()) return FLAGS_rate;
    double best = 0, best_cost = 1e300;
    for (const std::string& text : split(FLAGS_rates)) {
      const double rate = std::stod(text);
      double cost = 0;
      for (const std::string& pattern : split(FLAGS_tune)) {
        const Result result = trial(pattern, method, rate, kTuningSeed);
        const double never = 10 * result.trial.steps;
        if (FLAGS_samples > 0) {
          cost += result.outcome.final_loss;
        } else {
          cost += result.outcome.mean_model.value_or(never);
          cost += result.outcome.worker_model.value_or(never);
        }
      }
      if (!(cost < best_cost)) continue;
      best = rate;
      best_cost = cost;
    }
    return best;
  }

  // Where each worker is so many times slower for good.
  void print_bounds() {
    for (const std::string& name : chosen_patterns()) {
      const Pattern& pattern = find_pattern(name);
      double speeds = 0;
      for (int rank = 0; rank < comm_.size(); ++rank) {
        speeds += 1 / slowness(pattern, rank, comm_.size());
      }
      if (!name.starts_with("one_") && !name.starts_with("half_")) continue;
      fmt::print(
          "{}: who waits for nobody makes as many samples in {:.2f} of the time of who waits "
          "for all\n",
          name, comm_.size() / pattern.slowest / speeds);
    }
  }

  void print() {
    print_bounds();
    fmt::print("{} learnt by {} workers, base step {} ms, target loss {}; learning rates:",
               problem_.name, comm_.size(), FLAGS_step_ms, FLAGS_target);
    for (const auto& [method, rate] : rates_) fmt::print(" {} {},", method, rate);
    TableOptions table{.patterns = chosen_patterns(), .methods = methods_};
    const auto print = [&](const char* title, std::optional<double> Outcome::*what, int digits) {
      table.title = title;
      table.digits = digits;
      print_table(table, taken_, what);
    };
    if (FLAGS_samples > 0) {
      for (Result& each : taken_) each.outcome.loss_at_samples = each.outcome.final_loss;
    } else {
      print("\nBase steps until the mean of all workers' models had the target's loss",
            &Outcome::mean_model, 0);
      print("Base steps until half of the workers' own models had it", &Outcome::worker_model, 0);
    }
    print("Loss of the mean model at equal samples", &Outcome::loss_at_samples, 4);
  }

  Communicator& comm_;
  const Problem& problem_;
  Results results_;
  std::string shared_;
  std::vector<std::string> methods_;
  TimePoint begin_;
  std::map<std::string, double> rates_;
  std::vector<Result> taken_;
};

bool run_as(int rank, const Problem& problem, const Results& results, const std::string& shared) {
  setenv("MOTLEY_RANK", std::to_string(rank).c_str(), 1);
  setenv("MOTLEY_SIZE", std::to_string(FLAGS_workers).c_str(), 1);
  setenv("MOTLEY_CONTROLLER", ("file:" + shared + "/job").c_str(), 1);
  Communicator comm = Communicator::join(Options::from_environment());
  Bench(comm, problem, results, shared).run();
  comm.barrier().wait();
  return true;
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) {
  using namespace motley;
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    const bench::Problem problem = bench::problem_from_flags();
    const bench::Results results(FLAGS_results);
    for (const std::string& pattern : bench::chosen_patterns()) bench::find_pattern(pattern);
    for (const std::string& method : bench::split(FLAGS_methods)) bench::parse_method(method);
    const test::TemporaryFolder folder;
    test::ForkedRanks ranks(FLAGS_workers, [&](int rank, Store&) {
      return bench::run_as(rank, problem, results, folder.path());
    });
    bool ok = true;
    for (int rank = 0; rank < FLAGS_workers; ++rank) ok = ranks.ended_well(rank) && ok;
    return ok ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "partial_perf: {}\n", error.what());
    return 1;
  }
}
