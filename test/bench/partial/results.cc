#include "test/bench/partial/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "comm/error.h"

namespace motley::bench {
namespace {

using nlohmann::json;

json to_json(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }
std::optional<double> optional_of(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

json to_json(const Result& result) {
  const Trial& trial = result.trial;
  const Outcome& outcome = result.outcome;
  return {{"problem", result.problem},
          {"workers", result.workers},
          {"pattern", trial.pattern},
          {"method", trial.method},
          {"rate", trial.learning_rate},
          {"seed", trial.seed},
          {"limit", trial.steps},
          {"samples", trial.samples},
          {"mean_model", to_json(outcome.mean_model)},
          {"worker_model", to_json(outcome.worker_model)},
          {"loss_at_samples", to_json(outcome.loss_at_samples)},
          {"final_loss", outcome.final_loss},
          {"steps", outcome.steps},
          {"longest_round", outcome.longest_round},
          {"waiting", outcome.waiting}};
}

Result result_of(const json& line) {
  return {.problem = line.at("problem"),
          .workers = line.at("workers"),
          .trial = {.pattern = line.at("pattern"),
                    .method = line.at("method"),
                    .learning_rate = line.at("rate"),
                    .seed = line.at("seed"),
                    .steps = line.at("limit"),
                    .samples = line.at("samples"),
                    .folder = {}},
          .outcome = {.mean_model = optional_of(line.at("mean_model")),
                      .worker_model = optional_of(line.at("worker_model")),
                      .loss_at_samples = optional_of(line.at("loss_at_samples")),
                      .final_loss = line.at("final_loss"),
                      .steps = line.at("steps"),
                      .longest_round = line.at("longest_round"),
                      .waiting = line.at("waiting")}};
}

std::string cell(const std::vector<std::optional<double>>& values, int digits) {
  if (values.empty()) return "";
  double sum = 0, squares = 0, n = 0;
  for (const auto& value : values) {
    if (!value) continue;
    sum += *value;
    squares += *value * *value;
    ++n;
  }
  if (n == 0) return "never";
  const double mean = sum / n;
  const double variance = n < 2 ? 0 : std::max(0.0, (squares - n * mean * mean) / (n - 1));
  std::string text =
      fmt::format("{:.{}f}±{:.{}f}", mean, digits, 1.96 * std::sqrt(variance / n), digits);
  const auto missing = static_cast<double>(values.size()) - n;
  if (missing > 0) text += fmt::format(" ({} of {} never)", missing, values.size());
  return text;
}

}  // namespace

Results::Results(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  std::ifstream file(path_);
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      all_.push_back(result_of(json::parse(line)));
    } catch (const json::exception& error) {
      throw Error(ErrorCode::kInvalid, fmt::format("{}:{}: no result: {}. Remove the line.", path_,
                                                   number, error.what()));
    }
  }
}

void Results::add(const Result& result) {
  all_.push_back(result);
  if (path_.empty()) return;
  std::ofstream file(path_, std::ios::app);
  file << to_json(result).dump() << '\n';
  if (!file.flush()) throw_errno("write " + path_);
}

const Result* Results::find(const std::string& problem, int workers, const Trial& trial) const {
  const auto found = std::find_if(all_.begin(), all_.end(), [&](const Result& each) {
    return each.problem == problem && each.workers == workers &&
           each.trial.pattern == trial.pattern && each.trial.method == trial.method &&
           each.trial.learning_rate == trial.learning_rate && each.trial.seed == trial.seed &&
           each.trial.samples == trial.samples;
  });
  return found == all_.end() ? nullptr : &*found;
}

void print_table(const TableOptions& options, const std::vector<Result>& results,
                 std::optional<double> Outcome::*what) {
  fmt::print("\n{}\n\n| pattern | {} |\n|-|{}\n", options.title, fmt::join(options.methods, " | "),
             fmt::join(std::vector<std::string>(options.methods.size(), "-|"), ""));
  for (const std::string& pattern : options.patterns) {
    fmt::print("| {} |", pattern);
    for (const std::string& method : options.methods) {
      std::vector<std::optional<double>> values;
      for (const Result& each : results) {
        if (each.trial.pattern != pattern || each.trial.method != method) continue;
        values.push_back(each.outcome.*what);
      }
      fmt::print(" {} |", cell(values, options.digits));
    }
    fmt::print("\n");
  }
}

}  // namespace motley::bench
