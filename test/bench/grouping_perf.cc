// What a decision of the controller costs, by the number of workers: of the matchmaker alone, and
// of the whole state machine with its messages, where workers announce when they will be ready,
// too; what a group costs its members, by how many different ones there are; and what the guard
// against isolation costs and saves. Virtual time for the workers, real time for what is measured.
#include <fmt/format.h>

#include <chrono>

#include "comm/communicator.h"
#include "comm/control/controller_core.h"
#include "comm/transport/inproc.h"
#include "test/comm/formation.h"

namespace motley::test {
namespace {

double microseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
      .count();
}

// Arrivals and decisions of a cluster, without what its workers cost.
double matchmaker_cost(int size, int group_size, const StepTime& step_time) {
  struct Event {
    TimePoint at;
    int rank;
  };
  Matchmaker matchmaker(size);
  matchmaker.use({.group_size = group_size});
  std::mt19937_64 random(1);
  std::priority_queue<std::pair<std::int64_t, int>, std::vector<std::pair<std::int64_t, int>>,
                      std::greater<>>
      due;
  const auto step = [&](int rank, TimePoint now) {
    due.emplace((now + step_time(rank, random)).time_since_epoch().count(), rank);
  };
  for (int rank = 0; rank < size; ++rank) step(rank, TimePoint(seconds(1)));
  double cost = 0;
  std::int64_t groups = 0;
  while (groups < 20LL * size / group_size + 10'000) {
    const auto [at, rank] = due.top();
    const TimePoint arrives{Duration(at)};
    const TimePoint now = std::min(arrives, matchmaker.hold_until());
    const auto begin = std::chrono::steady_clock::now();
    if (now == arrives) matchmaker.ready(rank, {}, now);
    std::vector<int> members = matchmaker.next(now);
    cost += microseconds_since(begin);
    if (now == arrives) due.pop();
    for (; !members.empty(); members = matchmaker.next(now)) {
      ++groups;
      for (const int each : members) step(each, now);
    }
  }
  return cost / static_cast<double>(groups);
}

enum class Ready : std::uint8_t { kNow, kAnnounced };

// READY of P workers in, and DONE; GROUP and COMMIT out. Announced: READY comes earlier, and BEGIN
// when the worker is ready.
class ControllerCost {
 public:
  ControllerCost(int size, int group_size, Ready ready)
      : ready_(ready),
        core_({.size = size, .token = "t", .lease = seconds(1e6)}, now_),
        seq_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      core_.on_message(std::to_string(rank),
                       {.type = MessageType::kHello, .rank = rank, .count = size, .value = "t"},
                       now_);
    }
    core_.take_output();
    ReadyNote note{.grouping = {.group_size = group_size}};
    ready_note_ = encode(note);
    if (ready == Ready::kAnnounced) {
      note.eta = std::chrono::microseconds(200);
      note.round_trip = std::chrono::microseconds(100);
    }
    note_ = encode(note);
  }

  // Microseconds a group.
  double operator()() {
    std::vector<int> order(seq_.size());
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 random(1);
    for (int round = 10 + 200'000 / static_cast<int>(seq_.size()); round > 0; --round) {
      ++step_;
      std::shuffle(order.begin(), order.end(), random);
      for (const int rank : order) {
        now_ += std::chrono::microseconds(1);
        Message message{.type = MessageType::kReady, .number = step_, .value = note_};
        tell(rank, std::move(message));
        serve();
      }
      now_ += std::chrono::milliseconds(1);  // what was announced last is due
      serve();
    }
    return cost_ / static_cast<double>(groups_);
  }

 private:
  void tell(int rank, Message message) {
    message.epoch = 1;
    message.seq = ++seq_[static_cast<std::size_t>(rank)];
    const std::string name = std::to_string(rank);
    const auto begin = std::chrono::steady_clock::now();
    core_.on_message(name, message, now_);
    for (ControllerCore::Output& each : core_.take_output()) told_.push_back(std::move(each));
    cost_ += microseconds_since(begin);
  }
  void serve() {
    if (core_.next_timer() <= now_) {
      const auto begin = std::chrono::steady_clock::now();
      core_.on_time(now_);
      for (ControllerCore::Output& each : core_.take_output()) told_.push_back(std::move(each));
      cost_ += microseconds_since(begin);
    }
    std::vector<ControllerCore::Output> told = std::exchange(told_, {});
    for (const ControllerCore::Output& each : told) {
      if (each.message.type == MessageType::kGroup) take_part(std::stoi(each.to), each.message);
    }
    told_.clear();  // answers to kBegin and kDone
  }
  void take_part(int rank, const Message& group) {
    groups_ += group.ranks.front() == rank ? 1 : 0;
    Message message{.type = MessageType::kBegin,
                    .number = step_,
                    .tag = group.tag,
                    .ranks = group.ranks,
                    .value = ready_note_};
    if (ready_ == Ready::kAnnounced) tell(rank, message);
    tell(rank, {.type = MessageType::kDone, .tag = group.tag, .ranks = group.ranks});
  }

  Ready ready_;
  TimePoint now_{seconds(1)};
  ControllerCore core_;
  std::vector<std::uint64_t> seq_;
  std::string note_, ready_note_;
  std::vector<ControllerCore::Output> told_;
  std::int64_t step_ = 0;
  double cost_ = 0;
  std::int64_t groups_ = 0;
};

void print_costs() {
  fmt::print(
      "Microseconds a group: matchmaker alone (workers alike to 2 %; a quarter 4 times slower), "
      "whole controller, the same where workers announce\n");
  fmt::print("{:>8} {:>3} {:>8} {:>8} {:>11} {:>10}\n", "workers", "P", "alike", "unlike",
             "controller", "announced");
  for (const int size : {16, 128, 1024, 4096, 10'000}) {
    for (const int group_size : {2, 4, 8}) {
      fmt::print("{:>8} {:>3} {:>8.2f} {:>8.2f} {:>11.2f} {:>10.2f}\n", size, group_size,
                 matchmaker_cost(size, group_size, alike(0.02)),
                 matchmaker_cost(size, group_size, unlike(0.02, size / 4, 4)),
                 ControllerCost(size, group_size, Ready::kNow)(),
                 ControllerCost(size, group_size, Ready::kAnnounced)());
    }
  }
}

// Sums of one float in groups of 4 of 16 ranks, which one thread drives, so that nothing but the
// calls costs anything. Each group is made anew, of one of so many lists of members.
void print_set_up() {
  constexpr int kRanks = 16, kGroupSize = 4, kGroups = 50'000;
  InprocNetwork network(kRanks);
  Options options;
  options.progress_thread = false;
  std::vector<Communicator> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back(network.transport(rank), Clock::real(), options);
  }
  std::uint64_t id = 0;
  fmt::print("\nMicroseconds of a group's sum, by the number of different groups\n");
  for (const std::size_t different : {1, 10, 100, 1'000, 10'000}) {
    std::mt19937_64 random(1);
    std::vector<std::vector<int>> lists;
    while (lists.size() < different) {
      std::vector<int> all(kRanks);
      std::iota(all.begin(), all.end(), 0);
      std::shuffle(all.begin(), all.end(), random);
      lists.emplace_back(all.begin(), all.begin() + kGroupSize);
    }
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kGroups; ++i) {
      const std::vector<int>& members = lists[static_cast<std::size_t>(i) % different];
      const std::vector<Group> groups(kGroupSize, Group(members, {.id = ++id}));
      std::vector<std::vector<float>> data(kGroupSize, std::vector<float>(1, 1));
      std::vector<Request> requests;
      for (std::size_t m = 0; m < members.size(); ++m) {
        requests.push_back(ranks[static_cast<std::size_t>(members[m])].all_reduce(
            data[m], ReduceOp::kSum, {.group = &groups[m]}));
      }
      for (std::size_t done = 0; done < requests.size();) {
        done = 0;
        for (Request& request : requests) done += request.test() ? 1 : 0;
      }
    }
    fmt::print("{:>8} {:>8.2f}\n", different, microseconds_since(begin) / kGroups);
  }
}

struct Case {
  const char* name;
  int size;
  int group_size;
  StepTime step_time;
};

void print_isolation() {
  fmt::print(
      "\nIsolation, simulated: windows in which some workers cannot hear of others, share of "
      "time not waited, steps/s of all (a step is 10 ms); what the guard waits more\n");
  fmt::print("{:34} {:>23}   {:>23}\n", "", "first come first served", "guard");
  for (const Case& c : {Case{"6 in threes, lockstep", 6, 3, alike(0)},
                        Case{"8 in pairs, 1 % jitter", 8, 2, alike(0.01)},
                        Case{"8 in pairs, 10 % jitter", 8, 2, alike(0.1)},
                        Case{"8 in fours, four 4 times slower", 8, 4, unlike(0.01, 4, 4)},
                        Case{"4 in pairs, two 3 times slower", 4, 2, unlike(0.01, 2, 3)},
                        Case{"64 in fours, 2 % jitter", 64, 4, alike(0.02)}}) {
    fmt::print("{:34}", c.name);
    double unguarded = 0, guarded = 0;
    for (const Guard guard : {Guard::kNone, Guard::kBridge}) {
      Formation formation(c.size, {.group_size = c.group_size, .guard = guard}, c.step_time, 1);
      const FormationLog& log = formation.run(seconds(20));
      fmt::print("  {:>7.1f} % {:>5.3f} {:>7.1f}",
                 100 * count_windows(log.groups, c.size, 3).share(), log.efficiency(),
                 log.steps_per_second());
      (guard == Guard::kNone ? unguarded : guarded) = log.efficiency();
    }
    fmt::print("  {:>5.2f} %\n", 100 * (unguarded - guarded));
  }
}

}  // namespace
}  // namespace motley::test

int main() {
  motley::test::print_costs();
  motley::test::print_set_up();
  motley::test::print_isolation();
}
