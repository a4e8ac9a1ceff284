#include "comm/cli/perf/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "comm/algorithm/families.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/sampling.h"
#include "comm/cli/perf/scratch_folder.h"
#include "comm/error.h"
#include "comm/json.h"

namespace motley::perf {
namespace {

constexpr double kTolerance = 0.1;

using Times = std::map<std::string, std::vector<double>>;  // by family, then by round
struct PointTimes {
  Times measured;
  Times price;
};

// The families of the plan's collectives that suit a host alone, in turns the other way round: who
// is measured first may find the machine otherwise than who is last.
std::vector<std::string> families_of(const Plan& plan, int round) {
  std::vector<std::string> names;
  for (const CallKind kind : plan.kinds) {
    for (const Algorithm& family : algorithms_of(kind)) {
      const bool known = std::find(names.begin(), names.end(), family.name) != names.end();
      if (family.suits == nullptr && !known) names.emplace_back(family.name);
    }
  }
  if (round % 2 == 1) std::reverse(names.begin(), names.end());
  return names;
}

// One size a run: the families of a point are measured right after one another.
std::vector<std::string> arguments(const Plan& plan, std::size_t bytes, int ranks, int round,
                                   const std::string& transport, const std::string& json) {
  std::vector<std::string> kinds;
  for (const CallKind kind : plan.kinds) kinds.emplace_back(name(kind));
  std::vector<std::string> words = {"-n",
                                    std::to_string(ranks),
                                    "-b",
                                    std::to_string(bytes),
                                    "-e",
                                    std::to_string(bytes),
                                    "--collectives",
                                    fmt::format("{}", fmt::join(kinds, ",")),
                                    "--places",
                                    "in",
                                    "--algorithm",
                                    fmt::format("{}", fmt::join(families_of(plan, round), ",")),
                                    "--cap",
                                    fmt::format("{}", to_seconds(plan.rule.cap)),
                                    "--samples",
                                    std::to_string(plan.rule.samples),
                                    "--json",
                                    json};
  if (!transport.empty()) words.insert(words.end(), {"--transport", transport});
  return words;
}

// Adds the families of a run's file: the least times, for others may use the cores.
void read(const std::string& path, int ranks, std::map<Point, PointTimes>& points) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json cell = parse_json(line, false);
    if (cell.is_discarded() || cell.value("line", "") != "cell") continue;
    if (!cell.contains("price_us")) continue;
    const Point point{ranks, parse_kinds(cell.at("collective")).front(), Place::kIn,
                      cell.at("bytes")};
    const std::string family = cell.at("asked");
    points[point].measured[family].push_back(cell.at("least_us").get<double>() * 1e-6);
    points[point].price[family].push_back(cell.at("price_us").get<double>() * 1e-6);
  }
}

std::vector<Priced> priced(const PointTimes& times) {
  std::vector<Priced> result;
  for (const auto& [family, measured] : times.measured)
    result.push_back({family, measured, quantile(times.price.at(family), 0.5)});
  std::sort(result.begin(), result.end(),
            [](const Priced& a, const Priced& b) { return a.median() < b.median(); });
  return result;
}

// What is said in the end, of some of the points or of all.
struct Tally {
  int points = 0, right = 0, strictly = 0, pairs = 0, right_pairs = 0;
  std::vector<double> errors;

  void add(const std::vector<Priced>& families, const Agreement& found) {
    const std::vector<double> here = perf::errors(families);
    errors.insert(errors.end(), here.begin(), here.end());
    if (families.size() == 1) return;  // one alone has no order
    ++points;
    right += found.holds();
    strictly += found.strictly;
    pairs += found.pairs;
    right_pairs += found.right;
  }
  void print(const std::string& where) const {
    fmt::print(
        "{}order right at {} of {} points ({} with the order of all medians), in {} of {} pairs; "
        "median error of a price: {:.0f} %\n",
        where, right, points, strictly, right_pairs, pairs, quantile(errors, 0.5) * 100);
  }
};

void print_point(const Point& point, const std::vector<Priced>& families, const Agreement& found) {
  const char* const order = families.size() == 1 ? "-" : found.holds() ? "right" : "wrong";
  fmt::print("{:<15} {:>5} {:>6}  {:<5}  {:>13.2f}x ", name(point.kind), point.ranks,
             size_text(point.bytes), order, found.regret);
  for (const Priced& family : families) {
    fmt::print("  {} {:.2f} ({:.2f})", family.family, family.median() * 1e6, family.price * 1e6);
  }
  fmt::print("\n");
}

void print(const std::map<Point, PointTimes>& points) {
  fmt::print(
      "\ncollective      ranks   size  order  cheapest costs  families from the fastest: "
      "measured us (price us)\n");
  std::map<int, Tally> by_ranks;
  Tally all;
  for (const auto& [point, times] : points) {
    const std::vector<Priced> families = priced(times);
    const Agreement found = agreement(families, kTolerance);
    by_ranks[point.ranks].add(families, found);
    all.add(families, found);
    print_point(point, families, found);
  }
  if (points.empty()) return;
  fmt::print(
      "\norder right: no two families are priced the other way round, if one of them took longer "
      "by more than {:.0f} % in three quarters of the rounds\ncheapest costs: time of the family "
      "with the least price, over that of the fastest\n\n",
      kTolerance * 100);
  for (const auto& [ranks, tally] : by_ranks) tally.print(fmt::format("{} ranks: ", ranks));
  all.print("all: ");
}

}  // namespace

double Priced::median() const { return quantile(times, 0.5); }

bool surely_faster(const Priced& a, const Priced& b, double tolerance) {
  std::size_t rounds = 0;
  for (std::size_t i = 0; i < a.times.size(); ++i)
    rounds += b.times[i] > (1 + tolerance) * a.times[i] ? 1 : 0;
  return 4 * rounds >= 3 * a.times.size();
}

Agreement agreement(const std::vector<Priced>& families, double tolerance) {
  Agreement result;
  for (const Priced& a : families) {
    for (const Priced& b : families) {
      result.strictly = result.strictly && (a.median() >= b.median() || a.price < b.price);
      if (!surely_faster(a, b, tolerance)) continue;
      ++result.pairs;
      result.right += a.price < b.price;
    }
  }
  const auto cheapest =
      std::min_element(families.begin(), families.end(),
                       [](const Priced& a, const Priced& b) { return a.price < b.price; });
  const auto fastest =
      std::min_element(families.begin(), families.end(),
                       [](const Priced& a, const Priced& b) { return a.median() < b.median(); });
  result.regret = cheapest->median() / fastest->median();
  return result;
}

std::vector<double> errors(const std::vector<Priced>& families) {
  std::vector<double> result;
  result.reserve(families.size());
  for (const Priced& family : families) {
    result.push_back(std::fabs(family.price / family.median() - 1));
  }
  return result;
}

void model(const Plan& plan, const ModelOptions& options) {
  fmt::print("motley-perf --model, commit {}, {}\n", commit_text(), machine_text());
  std::map<Point, PointTimes> points;
  for (int round = 0; round < options.rounds; ++round) {
    for (const int ranks : options.ranks) {
      for (const std::size_t bytes : plan.sizes) {
        const ScratchFolder folder;
        const std::string json = folder.path() + "/cells.jsonl";
        Command command{{options.self}, {{"MOTLEY_TOPOLOGY", options.topology}}};
        for (std::string& word : arguments(plan, bytes, ranks, round, options.transport, json)) {
          command.words.push_back(std::move(word));
        }
        const std::string failure = run_all({command}, options.run_limit);
        if (!failure.empty()) throw Error(ErrorCode::kIo, "motley-perf: " + failure);
        read(json, ranks, points);
      }
    }
  }
  print(points);
}

}  // namespace motley::perf
