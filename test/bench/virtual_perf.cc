// What forming groups costs and saves by itself: the training of partial_perf in virtual time, with
// the production matchmaker and real gradients, but without messages, cores and their noise. What
// workers lose to the machine is a parameter here: some steps take longer, at random.
//
//   virtual_perf [seeds [share of the steps that take one more]]        20 and 0 unless said
//   virtual_perf moments [seeds]     what to do with momentum and Adam's moments at an average
//
// Times in base steps until the mean of all models has the loss, and its share of all_reduce's.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/group/sketch.h"
#include "comm/weights.h"
#include "runtime/cross_entropy.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/seed.h"
#include "test/bench/partial/trial.h"
#include "test/comm/formation.h"

namespace motley::bench {
namespace {

constexpr double kBase = 0.01;  // seconds, the step of formation.h
constexpr double kJitter = 0.05;
constexpr double kRate = 0.8;     // of learning, by plain SGD
constexpr int kLooks = 4;         // at the loss, in a base step
constexpr double kLongest = 250;  // base steps

struct Setting {
  int workers;
  int slow;  // so many, four times
  double hiccups;
};
enum class Optimizing : std::uint8_t { kPlain, kMomentum, kAdam };
// What becomes of a worker's moments when its model is averaged.
enum class Moments : std::uint8_t { kAverage, kKeep, kReset };
struct Method {
  const char* name;
  int group_size;  // of all: all_reduce
  Weighting weighting;
  Optimizing optimizing = Optimizing::kPlain;
  Moments moments = Moments::kAverage;
  double rate = kRate;
};

std::unique_ptr<runtime::Optimizer> make_optimizer(const Method& method, ConstView parameters) {
  if (method.optimizing == Optimizing::kAdam) {
    return std::make_unique<runtime::Adam>(parameters,
                                           runtime::AdamOptions{.learning_rate = method.rate});
  }
  const double momentum = method.optimizing == Optimizing::kMomentum ? 0.9 : 0;
  return std::make_unique<runtime::Sgd>(
      parameters, runtime::SgdOptions{.learning_rate = method.rate, .momentum = momentum});
}

class Training {
 public:
  Training(const Problem& problem, const Setting& setting, const Method& method, std::uint64_t seed)
      : problem_(problem),
        method_(method),
        formation_(setting.workers,
                   {.group_size = method.group_size < 0 ? setting.workers : method.group_size},
                   steps_of(setting), seed) {
    for (int rank = 0; rank < setting.workers; ++rank) {
      workers_.emplace_back(problem, method, rank, seed);
    }
    formation_.arrival = [this](int rank) { return arrive(rank); };
    formation_.on_group = [this](const std::vector<int>& members) { average(members); };
  }

  // Base steps until the target; what is never reached took kLongest.
  double run() {
    for (int look = 1; look <= kLongest * kLooks; ++look) {
      formation_.run(seconds(kBase / kLooks));
      if (loss() <= problem_.target) return static_cast<double>(look) / kLooks;
    }
    return kLongest;
  }
  // Groups of less than all, among them.
  double share_of_parts() const { return static_cast<double>(parts_) / std::max(1, groups_); }

 private:
  struct Worker {
    Worker(const Problem& problem, const Method& method, int rank, std::uint64_t seed)
        : model(problem.train.shape, problem.layers, {.seed = seed}),
          optimizer(make_optimizer(method, model.parameters().values())),
          rows(runtime::make_generator({.seed = seed, .rank = rank, .purpose = "rows"})) {
      optimizer->list(moments);
    }
    runtime::Model<float> model;
    std::unique_ptr<runtime::Optimizer> optimizer;
    runtime::State moments;
    std::mt19937_64 rows;
    Sketch last{};
    std::int64_t version = 0;
    bool began = false;
  };

  static test::StepTime steps_of(const Setting& setting) {
    return [setting](int rank, std::mt19937_64& random) {
      double length = std::max(0.5, std::normal_distribution<double>(1, kJitter)(random));
      if (rank < setting.slow) length *= 4;
      if (test::unit(random) < setting.hiccups) length += 1;
      return seconds(kBase * length);
    };
  }
  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }

  Matchmaker::Arrival arrive(int rank) {
    Worker& self = worker(rank);
    std::vector<std::int64_t> drawn(problem_.batch);
    for (std::int64_t& row : drawn)
      row = static_cast<std::int64_t>(self.rows() % problem_.train.size());
    const runtime::Images batch = take(problem_.train, drawn);
    const auto scores = self.model.forward(batch.pixels, runtime::Mode::kTrain);
    std::vector<float> d_scores(scores.size());
    runtime::softmax_cross_entropy<float>(scores, batch.labels, d_scores);
    self.model.parameters().zero_gradients();
    self.model.backward(d_scores);
    self.optimizer->update(self.model.parameters().values(), self.model.parameters().gradients());
    ++self.version;
    Matchmaker::Arrival arrival{.sketch = sketch_of(self.model.parameters().values())};
    if (std::exchange(self.began, true))
      arrival.moved = std::sqrt(distance2(arrival.sketch, self.last));
    return arrival;
  }
  void average(const std::vector<int>& members) {
    ++groups_;
    if (members.size() < workers_.size()) ++parts_;
    std::vector<std::int64_t> versions;
    for (const int rank : members) versions.push_back(worker(rank).version);
    const std::vector<double> weight = weights(method_.weighting, versions);
    mix(members, weight, [](Worker& each) { return each.model.parameters().values(); });
    for (std::size_t i = 0; i < worker(members[0]).moments.items().size(); ++i) {
      average_moment(members, weight, i);
    }
    for (const int rank : members) {
      Worker& each = worker(rank);
      each.version = *std::max_element(versions.begin(), versions.end());
      each.last = sketch_of(each.model.parameters().values());
    }
  }
  // The floats of each member become their weighted mean.
  template <class Floats>
  void mix(const std::vector<int>& members, const std::vector<double>& weight, Floats floats) {
    std::vector<float> mean(floats(worker(members[0])).count);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const auto own = floats(worker(members[i])).template as<const float>();
      for (std::size_t j = 0; j < mean.size(); ++j)
        mean[j] += static_cast<float>(weight[i]) * own[j];
    }
    for (const int rank : members) {
      std::copy(mean.begin(), mean.end(), floats(worker(rank)).template as<float>().begin());
    }
  }
  // As state_sync.h would: moments by their mean, a step counter by the largest.
  void average_moment(const std::vector<int>& members, const std::vector<double>& weight,
                      std::size_t item) {
    const auto view = [item](Worker& each) { return each.moments.items()[item].data; };
    if (method_.moments == Moments::kKeep) return;
    if (method_.moments == Moments::kReset) {
      for (const int rank : members) {
        const View part = view(worker(rank));
        std::fill_n(part.data, part.size_bytes(), std::byte{});
      }
    } else if (view(worker(members[0])).dtype == DType::kFloat32) {
      mix(members, weight, view);
    } else {
      std::int64_t most = 0;
      for (const int rank : members)
        most = std::max(most, view(worker(rank)).as<const std::int64_t>()[0]);
      for (const int rank : members) view(worker(rank)).as<std::int64_t>()[0] = most;
    }
  }
  double loss() {
    if (!mean_) mean_.emplace(problem_.train.shape, problem_.layers, runtime::ModelOptions{});
    const std::span<float> values = mean_->parameters().values().as<float>();
    std::fill(values.begin(), values.end(), 0.0f);
    for (Worker& each : workers_) {
      const std::span<const float> own = each.model.parameters().values().as<float>();
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] += own[i] / static_cast<float>(workers_.size());
    }
    const auto scores = mean_->forward(problem_.test.pixels, runtime::Mode::kEvaluate);
    return runtime::softmax_cross_entropy<float>(scores, problem_.test.labels, {}).mean;
  }

  const Problem& problem_;
  Method method_;
  test::Formation formation_;
  std::deque<Worker> workers_;
  std::optional<runtime::Model<float>> mean_;
  int groups_ = 0, parts_ = 0;
};

// Base steps of so many seeds from `first` on, and their 95 % interval.
struct Times {
  double mean = 0;
  double interval = 0;
  double share_of_parts = 0;
};
Times times_of(const Problem& problem, const Setting& setting, const Method& method, int first,
               int seeds) {
  double sum = 0, squares = 0, parts = 0;
  for (int seed = first; seed < first + seeds; ++seed) {
    Training training(problem, setting, method, static_cast<std::uint64_t>(seed));
    const double time = training.run();
    sum += time / seeds;
    squares += time * time / seeds;
    parts += training.share_of_parts() / seeds;
  }
  return {sum, 1.96 * std::sqrt(std::max(0.0, squares - sum * sum) / seeds), parts};
}

void print_all(int seeds, double hiccups) {
  const Problem problem = make_problem("small", MOTLEY_DIGITS);
  const Weighting half{.rule = WeightRule::kExponential, .lambda = 0.5};
  const std::vector<Method> methods = {{"all_reduce", -1, {}},
                                       {"P-R 2", 2, {}},
                                       {"P-R 3", 3, {}},
                                       {"P-R adapted", 0, {}},
                                       {"P-R adapted, λ", 0, half}};
  fmt::print("{} seeds; {} % of the steps take one step longer\n\n", seeds, 100 * hiccups);
  fmt::print("| workers | method | base steps | of all_reduce | groups of less than all |\n");
  fmt::print("|-|-|-|-|-|\n");
  for (const Setting& setting : std::vector<Setting>{{8, 0, hiccups},
                                                     {8, 1, hiccups},
                                                     {8, 4, hiccups},
                                                     {4, 0, hiccups},
                                                     {4, 1, hiccups},
                                                     {4, 2, hiccups}}) {
    double all_reduce = 0;
    for (const Method& method : methods) {
      const Times times = times_of(problem, setting, method, 1, seeds);
      if (method.group_size < 0) all_reduce = times.mean;
      fmt::print("| {}, {} slow | {} | {:.1f}±{:.1f} | {:.2f} | {:.0f} % |\n", setting.workers,
                 setting.slow, method.name, times.mean, times.interval, times.mean / all_reduce,
                 100 * times.share_of_parts);
      std::fflush(stdout);
    }
  }
}

// Each policy at the best rate of one grid, among workers that are alike, with seeds of its own.
void print_moments(int seeds) {
  constexpr int kTuningSeed = 1000, kTuningSeeds = 4;
  const Problem problem = make_problem("small", MOTLEY_DIGITS);
  const Weighting half{.rule = WeightRule::kExponential, .lambda = 0.5};
  const std::vector<std::pair<const char*, Optimizing>> optimizers = {
      {"momentum 0.9", Optimizing::kMomentum}, {"Adam", Optimizing::kAdam}};
  const std::vector<std::pair<const char*, Moments>> policies = {
      {"averaged", Moments::kAverage}, {"kept", Moments::kKeep}, {"reset", Moments::kReset}};
  fmt::print("8 workers, {} seeds; base steps to loss {}\n\n", seeds, problem.target);
  fmt::print("| optimizer | method | moments | rate | alike | one x4 | half x4 |\n");
  fmt::print("|-|-|-|-|-|-|-|\n");
  for (const auto& [optimizer, optimizing] : optimizers) {
    for (Method method : {Method{"all_reduce", -1, {}}, Method{"P-R 2", 2, {}},
                          Method{"P-R 3", 3, {}}, Method{"P-R adapted, λ", 0, half}}) {
      for (const auto& [policy, moments] : policies) {
        method.optimizing = optimizing;
        method.moments = moments;
        double best = kLongest;
        double rate = 0;
        const bool adam = optimizing == Optimizing::kAdam;
        for (const double each :
             adam ? std::vector{0.01, 0.03, 0.1, 0.2} : std::vector{0.1, 0.2, 0.4, 0.8, 1.6}) {
          method.rate = each;
          const double time = times_of(problem, {8, 0, 0}, method, kTuningSeed, kTuningSeeds).mean;
          if (time >= best) continue;
          best = time;
          rate = each;
        }
        method.rate = rate;
        fmt::print("| {} | {} | {} | {} |", optimizer, method.name, policy, rate);
        for (const int slow : {0, 1, 4}) {
          const Times times = times_of(problem, {8, slow, 0}, method, 1, seeds);
          fmt::print(" {:.1f}±{:.1f} |", times.mean, times.interval);
        }
        fmt::print("\n");
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace motley::bench

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string_view("moments")) {
    motley::bench::print_moments(argc > 2 ? std::max(1, std::atoi(argv[2])) : 20);
    return 0;
  }
  motley::bench::print_all(argc > 1 ? std::max(1, std::atoi(argv[1])) : 20,
                           argc > 2 ? std::atof(argv[2]) : 0);
}
