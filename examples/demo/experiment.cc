#include "examples/demo/experiment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <utility>

#include "comm/error.h"
#include "comm/json.h"
#include "runtime/metrics.h"

namespace demo {
namespace {

using motley::Error;
using motley::ErrorCode;

constexpr int kRunMilliseconds = 600'000;  // a run that takes longer hangs

std::vector<std::string> command_of(const Settings& s, const Programs& programs,
                                    const Experiment& experiment, const std::string& prefix,
                                    int repeat) {
  std::vector<std::string> words = {programs.run, "-n", std::to_string(experiment.workers)};
  if (experiment.slow) {
    words.insert(words.end(), {"--slow", fmt::format("{}:{}", experiment.workers - 1, s.slow)});
  }
  words.insert(words.end(), {"--controller_program", programs.controller, "--", programs.demo});
  for (const auto& [flag, value] : std::vector<std::pair<const char*, std::string>>{
           {"worker", experiment.method},
           {"prefix", prefix},
           {"seed", std::to_string(repeat + 1)},
           {"data", s.data},
           {"test", s.test},
           {"workers", std::to_string(s.workers)},
           {"epochs", std::to_string(s.epochs)},
           {"parallel_epochs", std::to_string(s.parallel_epochs)},
           {"sync_rows", std::to_string(s.sync_rows)},
           {"base_step_ms", fmt::format("{}", 1e3 * s.base_step)},
           {"group_size", std::to_string(s.group_size)},
           {"factors", std::to_string(s.factors)},
           {"learning_rate", fmt::format("{}", s.learning_rate)}}) {
    words.push_back(fmt::format("--{}={}", flag, value));
  }
  return words;
}

std::string tail_of(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  constexpr std::size_t kBytes = 2000;
  return text.size() > kBytes ? "…" + text.substr(text.size() - kBytes) : text;
}

// Runs a command to its end, its output in `log`; throws if it fails.
void execute(std::vector<std::string> words, char* const* environment, const std::string& log) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = 0;
  errno = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment);
  posix_spawn_file_actions_destroy(&actions);
  if (errno != 0) motley::throw_errno("run " + words[0]);
  pollfd item{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&item, 1, kRunMilliseconds)) < 0 && errno == EINTR) {
  }
  if (ready == 0) ::kill(pid, SIGTERM);  // motley-run ends its ranks
  int status = 0;
  ::waitpid(pid, &status, 0);
  ::close(item.fd);
  if (status != 0) {
    throw Error(ErrorCode::kAborted,
                fmt::format("demo: a run failed; see {}, which ends with:\n{}", log, tail_of(log)));
  }
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) motley::throw_errno("open " + path);
  return motley::parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
}

RunResult read_run(const std::string& prefix, int workers) {
  RunResult result;
  for (const auto& point : read_json(prefix + ".curve.json")) {
    result.curve.push_back(
        {point["seconds"], point["log_loss"], point["auc"], point["own_log_loss"]});
  }
  for (int rank = 0; rank < workers; ++rank) {
    const std::string worker = fmt::format("{}.{}", prefix, rank);
    const nlohmann::json json = read_json(worker + ".json");
    result.workers.push_back({.rows = json["rows"],
                              .seconds = json["seconds"],
                              .rounds = motley::runtime::read_rounds(worker + ".rounds.jsonl")});
  }
  return result;
}

template <class Value>
double median_over(const std::vector<RunResult>& runs, Value value) {
  std::vector<double> values;
  std::transform(runs.begin(), runs.end(), std::back_inserter(values), value);
  return median(std::move(values));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

RunResult run_once(const Settings& settings, const Programs& programs, const Experiment& experiment,
                   int repeat) {
  const std::string prefix = fmt::format("{}/runs/{}-{}", settings.out, experiment.key, repeat + 1);
  execute(command_of(settings, programs, experiment, prefix, repeat), programs.environment,
          prefix + ".log");
  return read_run(prefix, experiment.workers);
}

double RunResult::best_log_loss() const {
  return std::min_element(
             curve.begin(), curve.end(),
             [](const CurvePoint& a, const CurvePoint& b) { return a.log_loss < b.log_loss; })
      ->log_loss;
}

std::optional<double> RunResult::seconds_to(double target, LossOf loss) const {
  for (const CurvePoint& point : curve) {
    if (point.*loss <= target) return point.seconds;
  }
  return std::nullopt;
}

double RunResult::rows_per_second() const {
  double rows = 0, seconds = 0;
  for (const WorkerResult& worker : workers) {
    rows += static_cast<double>(worker.rows);
    seconds = std::max(seconds, worker.seconds);
  }
  return seconds > 0 ? rows / seconds : 0;
}

double Result::log_loss() const {
  return median_over(runs, [](const RunResult& run) { return run.curve.back().log_loss; });
}

double Result::auc() const {
  return median_over(runs, [](const RunResult& run) { return run.curve.back().auc; });
}

double Result::rows_per_second() const {
  return median_over(runs, [](const RunResult& run) { return run.rows_per_second(); });
}

std::optional<double> Result::seconds_to(double target, LossOf loss) const {
  static constexpr double kNever = 1e300;
  const double seconds = median_over(runs, [target, loss](const RunResult& run) {
    return run.seconds_to(target, loss).value_or(kNever);
  });
  if (seconds >= kNever / 4) return std::nullopt;
  return seconds;
}

std::vector<double> Result::waiting_shares() const {
  std::vector<double> shares;
  for (int rank = 0; rank < experiment.workers; ++rank) {
    shares.push_back(median_over(runs, [rank](const RunResult& run) {
      return motley::runtime::time_shares(run.workers[static_cast<std::size_t>(rank)].rounds)
          .waiting;
    }));
  }
  return shares;
}

}  // namespace demo
