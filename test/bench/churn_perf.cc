// A day of a large cluster in virtual time with the production matchmaker: workers of lognormal
// speeds, of which one in a hundred dies each minute while another comes. What it costs to decide,
// how long workers wait, and how far they are apart.
//
//   churn_perf [hours]            24 unless said
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <queue>
#include <random>
#include <vector>

#include "comm/group/matchmaker.h"

namespace motley::test {
namespace {

constexpr double kStep = 30;      // seconds, of a worker of median speed
constexpr double kSpread = 0.3;   // of the logarithm of workers' speeds
constexpr double kJitter = 0.05;  // of that of each step
constexpr double kDeaths = 0.01;  // of a worker, in a minute
constexpr double kAway = 120;     // seconds until another has its place

class Day {
 public:
  Day(int workers, int group_size)
      : matchmaker_(workers), workers_(static_cast<std::size_t>(workers)) {
    matchmaker_.use({.group_size = group_size});
    for (int rank = 0; rank < workers; ++rank) come(rank);
  }

  void run(double hours) {
    const TimePoint end = now_ + seconds(hours * 3600);
    TimePoint look = now_ + seconds(3600);  // all have begun
    while (now_ < end) {
      const TimePoint next = due_.empty() ? TimePoint::max() : TimePoint(Duration(due_.top().at));
      now_ = std::min(next, matchmaker_.hold_until());
      if (now_ >= look) {
        note_gap();
        look += seconds(600);
      }
      if (next == now_) {
        const Event event = due_.top();
        due_.pop();
        take(event);
      }
      form();
    }
  }

  void print(const char* name) const {
    const double busy = stepped_ + waited_;
    fmt::print("| {} | {:.1f} % | {:.2f} | {:.2f} | {} | {} | {} |\n", name, 100 * waited_ / busy,
               static_cast<double>(groups_) / to_seconds(now_ - begin_),
               cost_ / static_cast<double>(groups_), most_apart_,
               matchmaker_.graph().spans_disconnected(), deaths_);
  }

 private:
  enum class What : std::uint8_t { kReady, kDies, kComes };
  struct Event {
    std::int64_t at;
    int rank;
    int life;
    What what;
    bool operator<(const Event& other) const { return at > other.at; }  // the earliest on top
  };
  struct Worker {
    int life = 0;
    double step = kStep;
    std::int64_t version = 0;
    TimePoint since{};  // ready
    bool lives = false;
  };

  Worker& worker(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  void plan(int rank, double after, What what) {
    due_.push({(now_ + seconds(after)).time_since_epoch().count(), rank, worker(rank).life, what});
  }
  void begin_step(int rank) {
    std::lognormal_distribution<double> jitter(0, kJitter);
    const double step = worker(rank).step * jitter(random_);
    stepped_ += step;
    plan(rank, step, What::kReady);
  }
  // A newcomer has the model of one that trains.
  void come(int rank) {
    Worker& self = worker(rank);
    ++self.life;
    self.lives = true;
    self.step = kStep * std::lognormal_distribution<double>(0, kSpread)(random_);
    self.version = newest_;
    plan(rank, std::exponential_distribution<double>(kDeaths / 60)(random_), What::kDies);
    begin_step(rank);
  }
  void take(const Event& event) {
    Worker& self = worker(event.rank);
    if (event.life != self.life) return;  // of one that has died since
    const auto begin = std::chrono::steady_clock::now();
    if (event.what == What::kReady) {
      newest_ = std::max(newest_, ++self.version);
      self.since = now_;
      matchmaker_.ready(event.rank, {}, now_);
    } else if (event.what == What::kDies) {
      ++deaths_;
      ++self.life;
      self.lives = false;
      matchmaker_.retire(event.rank);
      plan(event.rank, kAway, What::kComes);
    } else {
      matchmaker_.add(event.rank);
      come(event.rank);
    }
    count(begin);
  }
  void form() {
    while (true) {
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<int> members = matchmaker_.next(now_);
      count(begin);
      if (members.empty()) return;
      ++groups_;
      std::int64_t version = 0;
      for (const int rank : members) version = std::max(version, worker(rank).version);
      for (const int rank : members) {
        worker(rank).version = version;
        waited_ += to_seconds(now_ - worker(rank).since);
        begin_step(rank);
      }
    }
  }
  void count(std::chrono::steady_clock::time_point begin) {
    cost_ +=
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
  void note_gap() {
    std::int64_t oldest = newest_;
    for (const Worker& each : workers_) {
      if (each.lives) oldest = std::min(oldest, each.version);
    }
    most_apart_ = std::max(most_apart_, newest_ - oldest);
  }

  const TimePoint begin_{seconds(1)};
  TimePoint now_ = begin_;
  Matchmaker matchmaker_;
  std::vector<Worker> workers_;
  std::priority_queue<Event> due_;
  std::mt19937_64 random_{1};
  std::int64_t newest_ = 0, most_apart_ = 0, groups_ = 0, deaths_ = 0;
  double stepped_ = 0, waited_ = 0, cost_ = 0;
};

void print_all(double hours) {
  fmt::print(
      "{} hours, steps of {} s (lognormal: workers {}, steps {}), {} % of the workers die "
      "each minute\n\n",
      hours, kStep, kSpread, kJitter, 100 * kDeaths);
  fmt::print(
      "| workers | waiting | groups a second | us a group | versions apart, at most | spans "
      "apart at first | deaths |\n|-|-|-|-|-|-|-|\n");
  for (const int workers : {64, 512, 4096}) {
    for (const int group_size : {2, 3, 4, 8, 0}) {
      Day day(workers, group_size);
      day.run(hours);
      const std::string in = group_size == 0 ? "adapted" : fmt::format("in {}", group_size);
      day.print(fmt::format("{}, {}", workers, in).c_str());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace motley::test

int main(int argc, char** argv) { motley::test::print_all(argc > 1 ? std::atof(argv[1]) : 24); }
