#include "test/bench/partial/kill_run.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <random>
#include <sstream>

#include "comm/communicator.h"
#include "comm/error.h"
#include "runtime/cross_entropy.h"
#include "runtime/model.h"
#include "runtime/optimizer.h"
#include "runtime/seed.h"
#include "runtime/trainer.h"
#include "test/bench/partial/method.h"
#include "test/bench/partial/trial.h"
#include "test/comm/forked.h"

namespace motley::bench {
namespace {

using test::Forked;

constexpr Duration kLook = std::chrono::milliseconds(10);
constexpr Duration kStart = seconds(60);  // all have joined by then
constexpr Duration kEnd = seconds(60);    // all have ended, after the time was up
constexpr const char* kToken = "kill run";

// What a worker tells its parent, in memory that both see.
struct Told {
  std::atomic<std::int64_t> steps{0};
  std::atomic<double> loss{-1};
};
struct Board {
  std::atomic<bool> over{false};
  Told workers[64];
};

class SharedBoard {
 public:
  SharedBoard()
      : memory_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0)) {
    if (memory_ == MAP_FAILED) throw_errno("map memory");
    board_ = new (memory_) Board;
  }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  ~SharedBoard() { munmap(memory_, sizeof(Board)); }
  Board& operator*() const { return *board_; }

 private:
  void* memory_;
  Board* board_;
};

// --- A worker -----------------------------------------------------------------------------------

void work(const KillRun& run, const Problem& problem, const std::string& controller, int rank,
          Board& board) {
  Options options;
  options.rank = rank;
  options.size = run.workers;
  options.controller = controller;
  options.token = kToken;
  options.lease = run.lease;
  options.timeout = kEnd / 2;
  Communicator comm = Communicator::join(options);
  Told& told = board.workers[rank];
  runtime::Model<float> model(problem.train.shape, problem.layers, {.seed = run.seed});
  runtime::Sgd sgd(model.parameters().values(), {.learning_rate = run.learning_rate});
  Method method = parse_method(run.method);
  method.options.finish_timeout = kEnd / 2;
  const auto synchronizer = make_synchronizer(method.name, comm, method.options);
  runtime::Trainer trainer(comm, *synchronizer, {});
  auto rows = runtime::make_generator({.seed = run.seed, .rank = rank, .purpose = "rows"});
  std::vector<float> d_scores;
  trainer.run(model.parameters().values(), [&](std::int64_t) {
    const TimePoint begin = comm.clock().now();
    if (board.over) return false;
    std::vector<std::int64_t> drawn(problem.batch);
    for (std::int64_t& row : drawn) {
      row = static_cast<std::int64_t>(rows() % problem.train.size());
    }
    const runtime::Images batch = take(problem.train, drawn);
    const auto scores = model.forward(batch.pixels, runtime::Mode::kTrain);
    d_scores.resize(scores.size());
    runtime::softmax_cross_entropy<float>(scores, batch.labels, d_scores);
    model.parameters().zero_gradients();
    model.backward(d_scores);
    sgd.update(model.parameters().values(), model.parameters().gradients());
    comm.clock().sleep_until(begin + run.base_step);
    ++told.steps;
    return true;
  });
  const auto scores = model.forward(problem.test.pixels, runtime::Mode::kEvaluate);
  told.loss = runtime::softmax_cross_entropy<float>(scores, problem.test.labels, {}).mean;
}

// --- Its parent ---------------------------------------------------------------------------------

// The controller at one address, as often as it is killed.
class Controller {
 public:
  explicit Controller(const ControllerOptions& options) : options_(options) {
    start();
    options_.bind = process_->address();
  }
  void start() { process_ = std::make_unique<test::ForkedController>(options_); }
  void kill() { process_.reset(); }
  void signal(int number) const { process_->signal(number); }
  const std::string& address() const { return options_.bind; }

 private:
  ControllerOptions options_;
  std::unique_ptr<test::ForkedController> process_;
};

struct Usage {
  int descriptors = 0;
  double megabytes = 0;
};
Usage usage_of(int pid) {
  Usage usage;
  const std::string folder = fmt::format("/proc/{}", pid);
  std::error_code gone;
  for (auto at = std::filesystem::directory_iterator(folder + "/fd", gone); !gone && at != end(at);
       at.increment(gone)) {
    ++usage.descriptors;
  }
  std::ifstream status(folder + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) usage.megabytes = std::stod(line.substr(6)) / 1024;
  }
  return usage;
}

// A worker as its parent sees it.
struct Watched {
  std::unique_ptr<Forked> process;
  bool dead = false;
  TimePoint stopped_until{};  // if later than now, it is stopped
  Duration stopped{};         // in all
  std::int64_t steps = 0;     // when it last made one
  TimePoint moved{};          // then
  TimePoint died{};
  Usage usage;  // after a quarter of the time
};

class Run {
 public:
  explicit Run(const KillRun& run)
      : run_(run),
        problem_(make_problem("small", run.digits)),
        controller_({.size = run.workers, .token = kToken, .lease = run.lease}),
        random_(run.seed) {
    for (int rank = 0; rank < run.workers; ++rank) {
      workers_.emplace_back().process = std::make_unique<Forked>(
          [&, rank] { work(run_, problem_, controller_.address(), rank, *board_); });
    }
  }

  KillReport operator()() {
    await_first_steps();
    const TimePoint begin = clock_.now(), end = begin + run_.length;
    std::int64_t before = 0;
    for (Watched& each : workers_) {
      each.moved = begin;
      before += each.steps = told(each).steps;
    }
    bool measured = false;
    // The last fault is over a while before the end.
    const TimePoint last = end - std::max(run_.stop, run_.away) - 2 * run_.lease;
    TimePoint next = run_.every > Duration{} ? begin + run_.every : TimePoint::max();
    while (clock_.now() < end) {
      clock_.sleep_until(clock_.now() + kLook);
      const TimePoint now = clock_.now();
      go_on_with_stopped(now);
      watch(now);
      if (!measured && now - begin > run_.length / 4) {
        measured = true;
        for (Watched& each : workers_) each.usage = usage_of(each.process->pid());
      }
      if (now < next || now > last) continue;
      fault(now);
      next = now + run_.every;
    }
    take_rates(begin, before);
    (*board_).over = true;
    await_ends();
    return report_;
  }

 private:
  Told& told(const Watched& worker) { return (*board_).workers[&worker - workers_.data()]; }

  void await_first_steps() {
    const TimePoint deadline = clock_.now() + kStart;
    for (const Watched& each : workers_) {
      while (told(each).steps == 0) {
        if (clock_.now() > deadline) {
          throw Error(ErrorCode::kTimeout, "kill run: not all workers have begun to train.");
        }
        clock_.sleep_until(clock_.now() + kLook);
      }
    }
  }

  // In turn, so that a run has some of each.
  void fault(TimePoint now) {
    const int kind = faults_++ % 6;
    if (kind == 0 || kind == 3) return stop_worker(now);
    if (kind == 1 || kind == 4) {
      controller_.kill();
      controller_back_ = now + run_.away;
      ++report_.controller_kills;
    } else if (kind == 2) {
      kill_worker(now);
    } else {
      controller_.signal(SIGSTOP);
      controller_stopped_ = now + run_.stop;
      ++report_.controller_stops;
    }
  }

  Watched* choose() {
    std::vector<Watched*> living;
    for (Watched& each : workers_) {
      if (!each.dead) living.push_back(&each);
    }
    return living[random_() % living.size()];
  }

  void kill_worker(TimePoint now) {
    const auto living = std::ranges::count(workers_, false, &Watched::dead);
    if (living <= run_.survivors) return stop_worker(now);
    Watched& worker = *choose();
    worker.process->signal(SIGKILL);
    worker.process->wait();
    worker.dead = true;
    worker.died = now;
    ++report_.worker_kills;
  }

  void stop_worker(TimePoint now) {
    Watched& worker = *choose();
    worker.process->signal(SIGSTOP);
    worker.stopped_until = now + run_.stop;
    worker.stopped += run_.stop;
    ++report_.worker_stops;
  }

  void go_on_with_stopped(TimePoint now) {
    for (Watched& each : workers_) {
      if (each.stopped_until == TimePoint{} || now < each.stopped_until) continue;
      each.stopped_until = {};
      if (!each.dead) each.process->signal(SIGCONT);
      each.moved = now;
    }
    if (controller_back_ != TimePoint{} && now >= controller_back_) {
      controller_.start();
      controller_back_ = {};
    }
    if (controller_stopped_ != TimePoint{} && now >= controller_stopped_) {
      controller_.signal(SIGCONT);
      controller_stopped_ = {};
    }
  }

  void watch(TimePoint now) {
    for (Watched& each : workers_) {
      const std::int64_t steps = told(each).steps;
      if (each.dead || each.stopped_until != TimePoint{} || steps != each.steps) {
        each.moved = now;
      }
      each.steps = steps;
      report_.longest_halt = std::max(report_.longest_halt, to_seconds(now - each.moved));
    }
  }

  void take_rates(TimePoint begin, std::int64_t before) {
    const TimePoint now = clock_.now();
    report_.steps = -before;
    for (Watched& each : workers_) {
      report_.steps += told(each).steps;
      report_.worker_seconds += to_seconds((each.dead ? each.died : now) - begin - each.stopped);
      if (each.dead) continue;
      const Usage usage = usage_of(each.process->pid());
      report_.most_new_descriptors =
          std::max(report_.most_new_descriptors, usage.descriptors - each.usage.descriptors);
      report_.most_new_megabytes =
          std::max(report_.most_new_megabytes, usage.megabytes - each.usage.megabytes);
    }
  }

  void await_ends() {
    const TimePoint deadline = clock_.now() + kEnd;
    for (Watched& each : workers_) {
      if (each.dead) continue;
      const auto rank = &each - workers_.data();
      while (!each.process->ended() && clock_.now() < deadline) {
        clock_.sleep_until(clock_.now() + kLook);
      }
      if (!each.process->ended()) {
        report_.failures.push_back(fmt::format("worker {} has not ended in time", rank));
        continue;
      }
      const int status = each.process->wait();
      if (status != 0) {
        report_.failures.push_back(fmt::format("worker {} ended with status {}", rank, status));
      }
      report_.loss = std::max(report_.loss, told(each).loss.load());
    }
  }

  KillRun run_;
  Problem problem_;
  Clock& clock_ = Clock::real();
  SharedBoard board_;
  Controller controller_;
  std::mt19937_64 random_;
  std::vector<Watched> workers_;
  KillReport report_;
  int faults_ = 0;
  TimePoint controller_back_{};
  TimePoint controller_stopped_{};
};

}  // namespace

KillReport run_kills(const KillRun& run) { return Run(run)(); }

}  // namespace motley::bench
