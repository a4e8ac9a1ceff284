#include "comm/cli/perf/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "comm/cli/perf/report.h"
#include "comm/cli/perf/sampling.h"
#include "comm/cli/perf/scratch_folder.h"
#include "comm/error.h"

namespace motley::perf {
namespace {

constexpr double kTolerance = 0.1;

using Times = std::map<std::string, std::vector<double>>;  // by family
struct PointTimes {
  Times measured;
  std::map<std::string, double> price;
};

std::vector<std::string> arguments(const Plan& plan, int ranks, const std::string& transport,
                                   const std::string& json) {
  std::vector<std::string> kinds;
  for (const CallKind kind : plan.kinds) kinds.emplace_back(name(kind));
  const std::size_t factor = plan.sizes.size() > 1 ? plan.sizes[1] / plan.sizes[0] : 2;
  std::vector<std::string> words = {"-n",
                                    std::to_string(ranks),
                                    "-b",
                                    std::to_string(plan.sizes.front()),
                                    "-e",
                                    std::to_string(plan.sizes.back()),
                                    "-f",
                                    std::to_string(factor),
                                    "--collectives",
                                    fmt::format("{}", fmt::join(kinds, ",")),
                                    "--places",
                                    "in",
                                    "--algorithm",
                                    "all",
                                    "--cap",
                                    fmt::format("{}", to_seconds(plan.rule.cap)),
                                    "--samples",
                                    std::to_string(plan.rule.samples),
                                    "--json",
                                    json};
  if (!transport.empty()) words.insert(words.end(), {"--transport", transport});
  return words;
}

// Adds the families of a run's file. "auto" is one of them under another name.
void read(const std::string& path, int ranks, std::map<Point, PointTimes>& points) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json cell = nlohmann::json::parse(line, nullptr, false);
    if (cell.is_discarded() || cell.value("line", "") != "cell") continue;
    if (cell.at("asked") == "auto" || !cell.contains("price_us")) continue;
    const Point point{ranks, parse_kinds(cell.at("collective")).front(), Place::kIn,
                      cell.at("bytes")};
    const std::string family = cell.at("asked");
    points[point].measured[family].push_back(cell.at("time_us").get<double>() * 1e-6);
    points[point].price[family] = cell.at("price_us").get<double>() * 1e-6;
  }
}

std::vector<Priced> priced(const PointTimes& times) {
  std::vector<Priced> result;
  for (const auto& [family, measured] : times.measured) {
    result.push_back({family, quantile(measured, 0.5), times.price.at(family)});
  }
  std::sort(result.begin(), result.end(),
            [](const Priced& a, const Priced& b) { return a.measured < b.measured; });
  return result;
}

void print(const std::map<Point, PointTimes>& points) {
  fmt::print(
      "\ncollective      ranks   size  order  cheapest costs  families from the fastest: "
      "measured us (price us)\n");
  int compared = 0, agreed = 0, pairs = 0, right = 0;
  std::vector<double> all_errors;
  for (const auto& [point, times] : points) {
    const std::vector<Priced> families = priced(times);
    const Agreement found = agreement(families, kTolerance);
    const bool several = families.size() > 1;  // one alone has no order
    compared += several;
    agreed += several && found.holds();
    pairs += found.pairs;
    right += found.right;
    const std::vector<double> here = errors(families);
    all_errors.insert(all_errors.end(), here.begin(), here.end());
    fmt::print("{:<15} {:>5} {:>6}  {:<5}  {:>13.2f}x ", name(point.kind), point.ranks,
               size_text(point.bytes),
               !several        ? "-"
               : found.holds() ? "right"
                               : "wrong",
               found.regret);
    for (const Priced& family : families) {
      fmt::print("  {} {:.2f} ({:.2f})", family.family, family.measured * 1e6, family.price * 1e6);
    }
    fmt::print("\n");
  }
  if (points.empty()) return;
  fmt::print(
      "\norder right: no two families whose times differ by more than {:.0f} % are priced the "
      "other way round\ncheapest costs: time of the family with the least price, over that "
      "of the fastest\n\norder right at {} of {} points, in {} of {} pairs\nmedian error of "
      "a price: {:.0f} %\n",
      kTolerance * 100, agreed, compared, right, pairs, quantile(all_errors, 0.5) * 100);
}

}  // namespace

Agreement agreement(const std::vector<Priced>& families, double tolerance) {
  Agreement result;
  for (std::size_t a = 0; a < families.size(); ++a) {
    for (std::size_t b = 0; b < families.size(); ++b) {
      const bool slower = families[b].measured > families[a].measured * (1 + tolerance);
      if (!slower) continue;
      ++result.pairs;
      result.right += families[b].price > families[a].price;
    }
  }
  const auto cheapest =
      std::min_element(families.begin(), families.end(),
                       [](const Priced& a, const Priced& b) { return a.price < b.price; });
  const auto fastest =
      std::min_element(families.begin(), families.end(),
                       [](const Priced& a, const Priced& b) { return a.measured < b.measured; });
  result.regret = cheapest->measured / fastest->measured;
  return result;
}

std::vector<double> errors(const std::vector<Priced>& families) {
  std::vector<double> result;
  result.reserve(families.size());
  for (const Priced& family : families) {
    result.push_back(std::fabs(family.price / family.measured - 1));
  }
  return result;
}

void model(const Plan& plan, const ModelOptions& options) {
  fmt::print("motley-perf --model, commit {}, {}\n", commit_text(), machine_text());
  std::map<Point, PointTimes> points;
  for (int round = 0; round < options.rounds; ++round) {
    for (const int ranks : options.ranks) {
      const ScratchFolder folder;
      const std::string json = folder.path() + "/cells.jsonl";
      Command command{{options.self}, {{"MOTLEY_TOPOLOGY", options.topology}}};
      for (std::string& word : arguments(plan, ranks, options.transport, json)) {
        command.words.push_back(std::move(word));
      }
      const std::string failure = run_all({command}, options.run_limit);
      if (!failure.empty()) throw Error(ErrorCode::kIo, "motley-perf: " + failure);
      read(json, ranks, points);
    }
  }
  print(points);
}

}  // namespace motley::perf
