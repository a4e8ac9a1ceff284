// Workers that step and wait for groups, in virtual time, with the production matchmaker; and what
// can be seen of the groups from outside. Nothing is averaged.
#pragma once

#include <functional>
#include <numeric>
#include <queue>
#include <random>
#include <vector>

#include "comm/group/matchmaker.h"

namespace motley::test {

// How long the next step of a worker takes.
using StepTime = std::function<Duration(int rank, std::mt19937_64& random)>;

inline double unit(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11) * 0x1p-53;
}

// All take 10 ms, give or take `jitter` of it.
inline StepTime alike(double jitter) {
  return [jitter](int, std::mt19937_64& random) {
    return seconds(0.01 * (1 + jitter * (2 * unit(random) - 1)));
  };
}
// The same, but the first `slow` workers take `times` as long.
inline StepTime unlike(double jitter, int slow, double times) {
  return [=](int rank, std::mt19937_64& random) {
    return seconds(0.01 * (rank < slow ? times : 1) * (1 + jitter * (2 * unit(random) - 1)));
  };
}

struct Formed {
  TimePoint at;
  std::vector<int> members;
};

struct FormationLog {
  std::vector<Formed> groups;
  std::vector<std::int64_t> steps;   // by rank
  std::vector<std::int64_t> passed;  // by rank: groups that formed while it was the head, the most
  Duration waited{};                 // of all together
  Duration time{};

  // Share of the time that workers did not wait.
  double efficiency() const {
    return 1 - to_seconds(waited) / (to_seconds(time) * static_cast<double>(steps.size()));
  }
  double steps_per_second() const {
    return static_cast<double>(std::accumulate(steps.begin(), steps.end(), std::int64_t{0})) /
           to_seconds(time);
  }
};

class Formation {
 public:
  Formation(int size, const Grouping& grouping, StepTime step_time, std::uint64_t seed)
      : size_(size), matchmaker_(size), step_time_(std::move(step_time)), random_(seed) {
    matchmaker_.use(grouping);
    log_.steps.resize(static_cast<std::size_t>(size));
    log_.passed.resize(static_cast<std::size_t>(size));
    since_.resize(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) begin_step(rank);
  }

  // Called when `rank` becomes ready; sets what it tells of its model.
  std::function<Matchmaker::Arrival(int rank)> arrival = [](int) { return Matchmaker::Arrival{}; };
  std::function<void(const std::vector<int>&)> on_group = [](const std::vector<int>&) {};
  Duration averaging{};  // that a group takes

  const FormationLog& run(Duration time) {
    const TimePoint end = now_ + time;
    while (true) {
      const TimePoint arrives = due_.empty() ? TimePoint::max() : due_.top().at;
      now_ = std::min(arrives, matchmaker_.hold_until());
      if (now_ >= end) break;
      if (arrives == now_) {
        const int rank = due_.top().rank;
        due_.pop();
        since_[static_cast<std::size_t>(rank)] = now_;
        matchmaker_.ready(rank, arrival(rank), now_);
      }
      form();
    }
    log_.time += time;
    now_ = end;
    return log_;
  }
  Matchmaker& matchmaker() { return matchmaker_; }
  TimePoint now() const { return now_; }

 private:
  struct Due {
    TimePoint at;
    int rank;
    bool operator<(const Due& other) const {  // the earliest comes first, of those the lowest rank
      return at != other.at ? at > other.at : rank > other.rank;
    }
  };

  void begin_step(int rank) { due_.push({now_ + averaging + step_time_(rank, random_), rank}); }

  void form() {
    while (true) {
      std::vector<int> members = matchmaker_.next(now_);
      if (members.empty()) return;
      for (const int rank : members) {
        log_.waited += now_ - since_[static_cast<std::size_t>(rank)];
        ++log_.steps[static_cast<std::size_t>(rank)];
      }
      on_group(members);
      for (const int rank : members) begin_step(rank);
      log_.groups.push_back({now_, std::move(members)});
    }
  }

  int size_;
  Matchmaker matchmaker_;
  StepTime step_time_;
  std::mt19937_64 random_;
  TimePoint now_{seconds(1)};
  std::priority_queue<Due> due_;
  std::vector<TimePoint> since_;
  FormationLog log_;
};

// Windows are the shortest stretches of groups, one from each group on, that could have joined all
// workers four times over and in which each took part at least `times` times. Counts those and,
// with fresh sets for each, those that leave a worker out of reach of another.
struct Windows {
  int all = 0;
  int disconnected = 0;
  double share() const { return all == 0 ? 0 : static_cast<double>(disconnected) / all; }
};

inline Windows count_windows(const std::vector<Formed>& groups, int size, int times = 2) {
  Windows windows;
  std::vector<int> parent(static_cast<std::size_t>(size)), took(static_cast<std::size_t>(size));
  const std::function<int(int)> root = [&](int rank) {
    int& up = parent[static_cast<std::size_t>(rank)];
    return up == rank ? rank : up = root(up);
  };
  for (std::size_t first = 0; first < groups.size(); ++first) {
    std::iota(parent.begin(), parent.end(), 0);
    std::fill(took.begin(), took.end(), 0);
    int components = size, enough = 0;
    std::int64_t joins = 0;
    std::size_t i = first;
    for (; i < groups.size() && (joins < 4 * (size - 1) || enough < size); ++i) {
      const std::vector<int>& members = groups[i].members;
      joins += static_cast<std::int64_t>(members.size()) - 1;
      for (const int rank : members) {
        if (++took[static_cast<std::size_t>(rank)] == times) ++enough;
        const int a = root(members.front()), b = root(rank);
        if (a == b) continue;
        parent[static_cast<std::size_t>(b)] = a;
        --components;
      }
    }
    if (joins < 4 * (size - 1) || enough < size) return windows;  // the log ends before it does
    ++windows.all;
    windows.disconnected += components > 1 ? 1 : 0;
  }
  return windows;
}

}  // namespace motley::test
