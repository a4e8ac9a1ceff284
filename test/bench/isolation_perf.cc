// What isolation costs a training, and the guard against it: workers of two kinds, whose own minima
// are apart, average in groups of the production matchmaker, in virtual time. The sum of their
// losses has its minimum between the two; workers that never hear of the other kind stay with
// theirs.
//
//   isolation_perf [seeds]        5 unless said
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>

#include "test/comm/formation.h"

namespace motley::test {
namespace {

constexpr std::size_t kParts = 10;  // of a model
constexpr double kRate = 0.1;       // of learning
constexpr double kNoise = 0.3;      // of gradients
constexpr Duration kTime =
    seconds(10);  // a thousand steps of the fast; the latter half is measured

using Model = std::array<double, kParts>;

struct Setting {
  const char* name;
  int workers;
  int group_size;
  StepTime step_time;
};

struct Seen {
  double error = 0;  // squared distance of workers' models from the minimum, in the mean
  double steps = 0;  // of all workers together in the time of one step
  double apart = 0;  // share of the windows that leave a worker out of reach of another
};

// Worker i has the loss |x - t_i|^2 / 2, t_i = 1 in all parts for the first half, -1 for the rest.
class Training {
 public:
  Training(const Setting& setting, Guard guard, std::uint64_t seed)
      : setting_(setting),
        formation_(setting.workers, {.group_size = setting.group_size, .guard = guard},
                   setting.step_time, seed),
        random_(seed + 1),
        models_(static_cast<std::size_t>(setting.workers)) {
    formation_.arrival = [this](int rank) {
      step(rank);
      return Matchmaker::Arrival{};
    };
    formation_.on_group = [this](const std::vector<int>& members) { average(members); };
  }

  Seen run() {
    formation_.run(kTime / 2);
    measures_ = true;
    const FormationLog& log = formation_.run(kTime / 2);
    return {.error = error_ / static_cast<double>(looks_),
            .steps = log.steps_per_second() / 100,
            .apart = count_windows(log.groups, setting_.workers).share()};
  }

 private:
  void step(int rank) {
    std::normal_distribution<double> noise(0, kNoise);
    const double target = 2 * rank < setting_.workers ? 1 : -1;
    for (double& part : models_[static_cast<std::size_t>(rank)])
      part -= kRate * (part - target + noise(random_));
  }
  void average(const std::vector<int>& members) {
    Model mean{};
    for (const int rank : members) {
      for (std::size_t i = 0; i < kParts; ++i)
        mean[i] += models_[static_cast<std::size_t>(rank)][i] / static_cast<double>(members.size());
    }
    double distance = 0;
    for (const double part : mean) distance += part * part;
    for (const int rank : members) models_[static_cast<std::size_t>(rank)] = mean;
    if (!measures_) return;
    error_ += distance * static_cast<double>(members.size());
    looks_ += static_cast<std::int64_t>(members.size());
  }

  Setting setting_;
  Formation formation_;
  std::mt19937_64 random_;
  std::vector<Model> models_;
  bool measures_ = false;
  double error_ = 0;
  std::int64_t looks_ = 0;
};

struct Mean {
  double sum = 0, squares = 0;
  int count = 0;
  void add(double value) {
    sum += value;
    squares += value * value;
    ++count;
  }
  std::string to_text() const {
    const double mean = sum / count;
    const double variance = std::max(0.0, squares / count - mean * mean);
    return fmt::format("{:.3f}±{:.3f}", mean, 1.96 * std::sqrt(variance / count));
  }
};

void print(const Setting& setting, int seeds) {
  Mean error[2];
  Seen sum[2];
  for (int seed = 0; seed < seeds; ++seed) {
    for (const int guarded : {0, 1}) {
      const Seen seen = Training(setting, guarded == 1 ? Guard::kBridge : Guard::kNone,
                                 static_cast<std::uint64_t>(seed))
                            .run();
      error[guarded].add(seen.error);
      sum[guarded].steps += seen.steps / seeds;
      sum[guarded].apart += 100 * seen.apart / seeds;
    }
  }
  fmt::print("| {} | {} | {} | {:.1f}, {:.1f} % | {:.1f}, {:.1f} % |\n", setting.name,
             error[0].to_text(), error[1].to_text(), sum[0].steps, sum[0].apart, sum[1].steps,
             sum[1].apart);
}

void print_all(int seeds) {
  fmt::print(
      "Squared distance from the minimum; steps of all in the time of one, and windows apart; "
      "means of {} seeds\n\n",
      seeds);
  fmt::print("| workers | first come | guard | first come | guard |\n|-|-|-|-|-|\n");
  for (const Setting& setting : std::vector<Setting>{
           {"6 in threes, lockstep", 6, 3, alike(0)},
           {"6 in threes, 1 % jitter", 6, 3, alike(0.01)},
           {"8 in pairs, lockstep", 8, 2, alike(0)},
           {"8 in pairs, 1 % jitter", 8, 2, alike(0.01)},
           {"8 in pairs, 10 % jitter", 8, 2, alike(0.1)},
           {"8 in fours, four 4 times slower", 8, 4, unlike(0.01, 4, 4)},
           {"4 in pairs, two 3 times slower", 4, 2, unlike(0.01, 2, 3)},
           {"8 in threes, lockstep", 8, 3, alike(0)},
           {"64 in fours, 2 % jitter", 64, 4, alike(0.02)},
           {"1024 in fours, 2 % jitter", 1024, 4, alike(0.02)},
       }) {
    print(setting, seeds);
  }
}

}  // namespace
}  // namespace motley::test

int main(int argc, char** argv) {
  motley::test::print_all(argc > 1 ? std::max(1, std::atoi(argv[1])) : 5);
}
