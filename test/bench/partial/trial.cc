#include "test/bench/partial/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "comm/error.h"
#include "runtime/cross_entropy.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/seed.h"
#include "runtime/state_sync.h"
#include "runtime/trainer.h"
#include "test/bench/partial/method.h"
#include "test/bench/partial/pattern.h"

namespace motley::bench {
namespace {

using runtime::Images;
using runtime::Mode;
using runtime::Model;
using runtime::StateItem;
using runtime::StatePolicy;

constexpr std::size_t kClasses = 10;

// What all workers have copies of, over time, as this worker had it.
class Snapshots {
 public:
  explicit Snapshots(const runtime::State& state) {
    for (const StateItem& item : state.items()) {
      if (item.policy == StatePolicy::kAverage) items_.push_back(item.data);
    }
  }
  void add(double time) {
    std::vector<float> values;
    for (const View item : items_) {
      const auto part = item.as<const float>();
      values.insert(values.end(), part.begin(), part.end());
    }
    times_.push_back(time);
    models_.push_back(std::move(values));
  }
  void restore(std::span<const float> values) const {
    for (const View item : items_) {
      std::copy_n(values.begin(), item.count, item.as<float>().begin());
      values = values.subspan(item.count);
    }
  }
  // The number of steps made by `time`.
  std::size_t steps_at(double time) const {
    const auto later = std::upper_bound(times_.begin(), times_.end(), time);
    return static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, later - times_.begin() - 1));
  }
  const std::vector<float>& at(double time) const { return models_[steps_at(time)]; }

 private:
  std::vector<View> items_;
  std::vector<double> times_;
  std::vector<std::vector<float>> models_;
};

// The steps of this worker where all make `samples` each in the mean: more, if it is fast.
std::int64_t share_of(const Trial& trial, bool waits, int rank, int workers) {
  if (waits) return trial.samples;
  const Pattern& pattern = find_pattern(trial.pattern);
  double speeds = 0;
  for (int each = 0; each < workers; ++each) speeds += 1 / slowness(pattern, each, workers);
  return std::llround(static_cast<double>(trial.samples * workers) /
                      slowness(pattern, rank, workers) / speeds);
}

// One worker's training.
class Worker {
 public:
  Worker(Communicator& comm, const Problem& problem, const Trial& trial, const std::string& shared)
      : comm_(comm),
        problem_(problem),
        trial_(trial),
        method_(parse_method(trial.method)),
        model_(problem.train.shape, problem.layers, {.seed = trial.seed}),
        sgd_(
            model_.parameters().values(),
            {.learning_rate = trial.learning_rate, .l2 = problem.l2, .momentum = problem.momentum}),
        steps_(std::in_place, find_pattern(trial.pattern), comm.rank(), comm.size(), trial.seed,
               shared),
        rows_(
            runtime::make_generator({.seed = trial.seed, .rank = comm.rank(), .purpose = "rows"})),
        snapshots_(listed()) {
    method_.options.seed = trial.seed;
    own_steps_ = share_of(trial, waits_for_slow(method_), comm.rank(), comm.size());
  }

  void train() {
    const auto synchronizer = make_synchronizer(method_.name, comm_, method_.options);
    runtime::TrainerOptions options;
    if (!trial_.folder.empty()) {
      options.round_log = fmt::format("{}.rank{}.jsonl", trial_.folder, comm_.rank());
    }
    runtime::Trainer trainer(comm_, *synchronizer, options);
    snapshots_.add(0);
    trainer.on_round([&](const runtime::Round& round) {
      if (round.start == round.computed) return;  // the end, where all wait for all
      const double end = to_seconds(round.end);
      longest_round_ = std::max(longest_round_, end - last_end_);
      last_end_ = end;
      waited_ += to_seconds(round.together - round.computed);
      ended_ = end >= limit();
      if (!ended_) snapshots_.add(end);
    });
    const auto step = [&](std::int64_t number) { return goes_on(number) && make_step(number); };
    if (carries_state(*synchronizer)) {
      trainer.run(all_, step);
    } else {
      trainer.run(model_.parameters().values(), step);
    }
    steps_.reset();
  }

  double limit() const { return trial_.steps * problem_.base_step; }
  const Snapshots& snapshots() const noexcept { return snapshots_; }
  double longest_round() const noexcept { return longest_round_; }
  double waiting() const { return last_end_ > 0 ? waited_ / last_end_ : 0; }

  double loss() {
    const auto scores = model_.forward(problem_.test.pixels, Mode::kEvaluate);
    return runtime::softmax_cross_entropy<float>(scores, problem_.test.labels, {}).mean;
  }
  double loss_of(std::span<const float> values) {
    snapshots_.restore(values);
    return loss();
  }

 private:
  const runtime::State& listed() {
    model_.list(model_state_);
    model_.list(all_);
    if (method_.average_all) sgd_.list(all_);
    return model_state_;
  }
  // Running means and variances go with the parameters, if there are any.
  bool carries_state(const runtime::Synchronizer& synchronizer) {
    const bool more_than_parameters = all_.items().size() > model_.parameters().shapes().size();
    return more_than_parameters && synchronizer.mixes() && !method_.average_bare;
  }
  bool goes_on(std::int64_t number) const {
    return trial_.samples > 0 ? number < own_steps_ : !ended_;
  }
  bool make_step(std::int64_t number) {
    const TimePoint begin = comm_.clock().now();
    if (trial_.samples > 0) {
      const double done = static_cast<double>(number) / static_cast<double>(own_steps_);
      sgd_.set_learning_rate(trial_.learning_rate * (1 + std::cos(done * std::numbers::pi)) / 2);
    }
    std::vector<std::int64_t> rows(problem_.batch);
    for (std::int64_t& row : rows) {
      row = static_cast<std::int64_t>(rows_() % problem_.train.size());
    }
    const Images batch = take(problem_.train, rows);
    d_scores_.resize(batch.size() * kClasses);
    const auto scores = model_.forward(batch.pixels, Mode::kTrain);
    runtime::softmax_cross_entropy<float>(scores, batch.labels, d_scores_);
    model_.parameters().zero_gradients();
    model_.backward(d_scores_);
    sgd_.update(model_.parameters().values(), model_.parameters().gradients());
    steps_->lengthen(number, begin, seconds(problem_.base_step));
    return true;
  }

  Communicator& comm_;
  const Problem& problem_;
  Trial trial_;
  Method method_;
  Model<float> model_;
  runtime::Sgd sgd_;
  std::optional<Steps> steps_;
  std::mt19937_64 rows_;
  runtime::State model_state_, all_;
  Snapshots snapshots_;
  std::vector<float> d_scores_;
  std::int64_t own_steps_ = 0;
  bool ended_ = false;
  double last_end_ = 0, longest_round_ = 0, waited_ = 0;
};

// Losses at equal times, the same on all workers.
struct Curves {
  std::vector<double> mean_model;
  std::vector<double> worker_model;  // the median of the workers' own
  std::vector<double> steps;         // in the mean over workers
};

// Each worker evaluates its own models, and its part of the mean ones.
Curves evaluate(Communicator& comm, Worker& worker, std::size_t points) {
  const auto workers = static_cast<std::size_t>(comm.size());
  std::vector<float> models;
  std::vector<double> own(points), steps(points), mean(points), all(points * workers);
  std::size_t n = 0;
  for (std::size_t point = 0; point < points; ++point) {
    const double time =
        worker.limit() * static_cast<double>(point + 1) / static_cast<double>(points);
    const std::vector<float>& model = worker.snapshots().at(time);
    n = model.size();
    models.insert(models.end(), model.begin(), model.end());
    own[point] = worker.loss_of(model);
    steps[point] = static_cast<double>(worker.snapshots().steps_at(time));
  }
  comm.all_reduce(models, ReduceOp::kAverage).wait();
  for (auto point = static_cast<std::size_t>(comm.rank()); point < points; point += workers) {
    mean[point] = worker.loss_of(std::span<const float>(models).subspan(point * n, n));
  }
  comm.all_reduce(mean, ReduceOp::kSum).wait();
  comm.all_reduce(steps, ReduceOp::kAverage).wait();
  comm.all_gather(own, all).wait();
  Curves curves{.mean_model = mean, .worker_model = {}, .steps = steps};
  for (std::size_t point = 0; point < points; ++point) {
    std::vector<double> losses;
    for (std::size_t w = 0; w < workers; ++w) losses.push_back(all[w * points + point]);
    std::sort(losses.begin(), losses.end());
    curves.worker_model.push_back(losses[workers / 2]);
  }
  return curves;
}

// Base steps until the loss was reached; between points by a straight line.
std::optional<double> reached(const std::vector<double>& losses, double target, double longest) {
  const auto points = static_cast<double>(losses.size());
  for (std::size_t point = 0; point < losses.size(); ++point) {
    if (losses[point] > target) continue;
    double back = 0;  // points
    if (point > 0) back = (target - losses[point]) / (losses[point - 1] - losses[point]);
    return longest * (static_cast<double>(point) + 1 - back) / points;
  }
  return std::nullopt;
}

}  // namespace

Problem make_problem(const std::string& name, const std::string& digits) {
  using runtime::Dense, runtime::Relu;
  Problem problem{.name = name};
  if (name == "linear") {
    problem.layers = {Dense{kClasses}};
    problem.l2 = 1e-2;
  } else if (name == "small") {
    problem.layers = {Dense{32}, Relu{}, Dense{kClasses}};
  } else if (name == "mlp") {
    problem.layers = runtime::mlp_classifier(kClasses);
    problem.points = 60;
  } else if (name == "convolutional") {
    problem.layers = runtime::small_convolutional_classifier(kClasses);
    problem.points = 40;
  } else {
    throw Error(ErrorCode::kInvalid,
                fmt::format("there is no problem \"{}\". See partial/trial.h.", name));
  }
  const Images all =
      runtime::read_images(digits, {.shape = {1, 8, 8}, .classes = 10, .largest = 16});
  problem.train = runtime::split_every(all, 6).train;
  problem.test = runtime::split_every(problem.train, name == "convolutional" ? 6 : 3).test;
  return problem;
}

Outcome run_trial(Communicator& comm, const Problem& problem, const Trial& trial,
                  const std::string& shared) {
  Worker worker(comm, problem, trial, shared);
  worker.train();
  Outcome outcome{.final_loss = worker.loss()};
  std::vector<double> own = {worker.longest_round()}, share = {worker.waiting()};
  comm.all_reduce(own, ReduceOp::kMax).wait();
  comm.all_reduce(share, ReduceOp::kAverage).wait();
  outcome.longest_round = own[0] / problem.base_step;
  outcome.waiting = share[0];
  if (trial.samples > 0) return outcome;
  const Curves curves = evaluate(comm, worker, static_cast<std::size_t>(problem.points));
  outcome.mean_model = reached(curves.mean_model, problem.target, trial.steps);
  outcome.worker_model = reached(curves.worker_model, problem.target, trial.steps);
  outcome.steps = curves.steps.back();
  for (std::size_t point = 0; point < curves.steps.size(); ++point) {
    if (problem.equal_steps == 0 ||
        curves.steps[point] < static_cast<double>(problem.equal_steps)) {
      continue;
    }
    outcome.loss_at_samples = curves.mean_model[point];
    break;
  }
  return outcome;
}

}  // namespace motley::bench
