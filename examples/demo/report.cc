#include "examples/demo/report.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace demo {
namespace {

constexpr double kTargetMargin = 0.001;

std::string shares_text(const Result& result) {
  std::string text;
  for (const double share : result.waiting_shares()) text += fmt::format("{:4.0f} %", 100 * share);
  return text;
}

std::string row(const Report& report, const Result& result) {
  const auto text_of = [](std::optional<double> seconds) {
    return seconds ? fmt::format("{:.2f} s", *seconds) : std::string("never");
  };
  return fmt::format("{:<15} {:<10} {:>9} {:>9} {:>8.0f}  {:<24} {:>9.5f} {:>7.4f} {:>+8.2f} %\n",
                     result.experiment.title, result.experiment.slow ? "one slow" : "none slow",
                     text_of(result.seconds_to(report.target())),
                     text_of(result.seconds_to(report.target(), &CurvePoint::own_log_loss)),
                     result.rows_per_second(), shares_text(result), result.log_loss(), result.auc(),
                     100 * report.log_loss_gap(result));
}

}  // namespace

double Report::target() const {
  std::vector<double> best;
  for (const RunResult& run : single.runs) best.push_back(run.best_log_loss());
  return median(std::move(best)) * (1 + kTargetMargin);
}

double Report::speed_up(int slow) const {
  const auto all = all_reduce[slow].seconds_to(target());
  const auto partial = partial_reduce[slow].seconds_to(target());
  return all && partial ? *all / *partial : 0;
}

double Report::log_loss_gap(const Result& result) const {
  return result.log_loss() / single.log_loss() - 1;
}

std::vector<const Result*> Report::all() const {
  return {&single, &all_reduce[1], &partial_reduce[1], &all_reduce[0], &partial_reduce[0]};
}

std::string to_text(const Report& report) {
  std::string text = fmt::format("\n{:<15} {:<10} {:>9} {:>9} {:>8}  {:<24} {:>9} {:>7} {:>10}\n",
                                 "method", "workers", "to target", "worker 0", "rows/s",
                                 "waiting, by worker", "log loss", "AUC", "to single");
  for (const Result* result : report.all()) text += row(report, *result);
  text += fmt::format(
      "\nto target: until the mean of all models has a test log loss of {:.5f}, the single "
      "worker's "
      "best + 0.1 %.\nworker 0: until the model of worker 0 has it. Medians of {} repeats.\n",
      report.target(), report.settings.repeats);
  for (const int slow : {1, 0}) {
    const double gain = report.speed_up(slow);
    text += fmt::format(
        "speed-up of partial-reduce over all-reduce, {}: {}\n",
        slow == 1 ? fmt::format("one worker {:g} times slower", report.settings.slow)
                  : std::string("no worker slow"),
        gain > 0 ? fmt::format("{:.2f}", gain) : std::string("none: the target was not reached"));
  }
  return text;
}

}  // namespace demo
