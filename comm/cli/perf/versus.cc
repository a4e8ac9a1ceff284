#include "comm/cli/perf/versus.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "comm/cli/perf/comparison.h"
#include "comm/cli/perf/machine.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/scratch_folder.h"
#include "comm/cli/perf/versus_table.h"
#include "comm/error.h"
#include "comm/json.h"

namespace motley::perf {
namespace {

constexpr std::size_t kSmall = 64 << 10;        // largest size of the blocks of small ones
constexpr std::size_t kLimitFrom = 16 << 20;    // smallest size that is held against memory
constexpr std::size_t kMostCopied = 256 << 20;  // a larger copy is no slower per byte
constexpr int kFewSamples = 9;                  // of which one that was held up may be the median
constexpr int kRepetitions = 2;                 // of a run in which some cell was held up

struct Block {
  int ranks = 0;
  CallKind kind = CallKind::kAllReduce;
  std::vector<std::size_t> sizes;
};

std::vector<Block> blocks(const Plan& plan, const VersusOptions& options) {
  const auto middle = std::upper_bound(plan.sizes.begin(), plan.sizes.end(), kSmall);
  std::vector<Block> result;
  for (const int ranks : options.ranks) {
    for (const CallKind kind : plan.kinds) {
      for (const auto& sizes :
           {std::vector(plan.sizes.begin(), middle), std::vector(middle, plan.sizes.end())}) {
        if (!sizes.empty()) result.push_back({ranks, kind, sizes});
      }
    }
  }
  return result;
}

std::vector<std::string> arguments(const Block& block, const Plan& plan, const std::string& json) {
  std::vector<std::string> places;
  for (const Place place : plan.places) places.emplace_back(name(place));
  const std::size_t factor = block.sizes.size() > 1 ? block.sizes[1] / block.sizes[0] : 2;
  return {"-b",
          fmt::format("{}", block.sizes.front()),
          "-e",
          fmt::format("{}", block.sizes.back()),
          "-f",
          fmt::format("{}", factor),
          "--collectives",
          name(block.kind),
          "--places",
          fmt::format("{}", fmt::join(places, ",")),
          "--cap",
          fmt::format("{}", to_seconds(plan.rule.cap)),
          "--samples",
          fmt::format("{}", plan.rule.samples),
          "--json",
          json};
}

class Versus {
 public:
  Versus(const Plan& plan, const VersusOptions& options)
      : plan_(plan),
        options_(options),
        competitors_(all_competitors(options.self, options.peers)),
        comparison_(competitors_) {
    if (options.json.empty()) return;
    json_.open(options.json);
    write({{"line", "heading"},
           {"program", "motley-perf --versus"},
           {"commit", commit_text()},
           {"machine", machine_text()},
           {"rounds", options.rounds}});
  }

  int run() {
    fmt::print("motley-perf --versus, commit {}, {}\n", commit_text(), machine_text());
    for (const Competitor& competitor : competitors_) {
      if (competitor.missing.empty()) continue;
      fmt::print("not run, so not beaten: {}: {}\n", competitor.name, competitor.missing);
    }
    for (const Block& block : blocks(plan_, options_)) {
      for (int round = 0; round < options_.rounds; ++round) take_turn(block, round);
    }
    print_tables(comparison_);
    print_goals(comparison_);
    return bad_runs_;
  }

 private:
  void take_turn(const Block& block, int round) {
    fmt::print("\n{} ranks, {}, {} to {}, turn {} of {}\n", block.ranks, name(block.kind),
               size_text(block.sizes.front()), size_text(block.sizes.back()), round + 1,
               options_.rounds);
    for (std::size_t i = 0; i < competitors_.size(); ++i) {
      if (!competitors_[i].missing.empty()) continue;
      run_competitor(block, round, i);
      for (int more = 0; more < kRepetitions; ++more) {
        const int held_up = comparison_.held_up(block.ranks, block.kind, i, round);
        if (held_up == 0) break;
        fmt::print("  held up at {} of its points, so once more:\n", held_up);
        run_competitor(block, round, i);
      }
    }
  }

  void run_competitor(const Block& block, int round, std::size_t index) {
    const Competitor& competitor = competitors_[index];
    const bool limited = competitor.ours && competitor.buffers == Buffers::kAllocated;
    const ScratchFolder folder;
    const ScratchFolder store;
    const std::string json = folder.path() + "/cells.jsonl";
    if (limited) measure_limits(block, round);
    const double before = exchange_ns();
    const TimePoint start = Clock::real().now();
    const std::string failure =
        run_all(competitor.commands(block.ranks, arguments(block, plan_, json), store.path()),
                options_.block_limit);
    const double took = to_seconds(Clock::real().now() - start);
    const double after = exchange_ns();
    if (limited) measure_limits(block, round);
    const Read read = read_cells(json, block, round, index, before, after);
    if (competitor.ours && (!failure.empty() || read.wrong > 0)) ++bad_runs_;
    fmt::print("  {:<24} {:>3} cells in {:>6.1f} s, probe {:>4.0f} and {:>4.0f} ns{}{}\n",
               competitor.name, read.cells, took, before, after, failure.empty() ? "" : "; ",
               failure);
    std::fflush(stdout);
  }

  struct Read {
    int cells = 0;
    int wrong = 0;  // beside them
  };
  Read read_cells(const std::string& path, const Block& block, int round, std::size_t competitor,
                  double before, double after) {
    Read read;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      nlohmann::json cell = parse_json(line, false);
      if (cell.is_discarded() || cell.value("line", "") != "cell") continue;
      if (cell.at("wrong") != 0) {
        fmt::print("  wrong result, left out: {}\n", line);
        ++read.wrong;
        continue;
      }
      ++read.cells;
      const Point point{block.ranks, block.kind,
                        cell.at("place") == name(Place::kIn) ? Place::kIn : Place::kOut,
                        cell.at("bytes")};
      const bool few = cell.at("samples") <= kFewSamples;
      comparison_.add(point, competitor,
                      {.round = round,
                       .time = cell.at("time_us").get<double>() * 1e-6,
                       .probe_ns = (before + after) / 2,
                       .least = few ? cell.at("least_us").get<double>() * 1e-6 : 0});
      cell.update({{"line", "versus"},
                   {"ranks", block.ranks},
                   {"round", round},
                   {"competitor", competitors_[competitor].name},
                   {"probe_before_ns", before},
                   {"probe_after_ns", after}});
      write(cell);
    }
    return read;
  }

  // Every rank reads its share of all buffers once and writes it once: as much as if it copied its
  // own. The cores share the copying of all ranks.
  void measure_limits(const Block& block, int round) {
    const int processes = std::min(block.ranks, usable_cores());
    for (const std::size_t bytes : block.sizes) {
      if (bytes < kLimitFrom) continue;
      const std::size_t each =
          bytes * static_cast<std::size_t>(block.ranks) / static_cast<std::size_t>(processes);
      const double speed = copy_bandwidth(processes, std::min(each, kMostCopied));
      if (speed == 0) continue;
      const double time = static_cast<double>(each) / speed;
      comparison_.add_limit(block.ranks, bytes, round, time);
      fmt::print(
          "  memory: {} at once copy {} each at {:.2f} GB/s: {} ranks need {:.0f} us for {}\n",
          processes, size_text(std::min(each, kMostCopied)), speed * 1e-9, block.ranks, time * 1e6,
          size_text(bytes));
      write({{"line", "limit"},
             {"ranks", block.ranks},
             {"bytes", bytes},
             {"round", round},
             {"time_us", time * 1e6},
             {"copy_gbs", speed * 1e-9}});
    }
  }

  void write(const nlohmann::json& line) {
    if (!json_.is_open()) return;
    json_ << json_text(line) << std::endl;
    if (!json_) throw_errno("motley-perf: write " + options_.json);
  }

  const Plan& plan_;
  const VersusOptions& options_;
  std::vector<Competitor> competitors_;
  Comparison comparison_;
  std::ofstream json_;
  int bad_runs_ = 0;  // of ours
};

}  // namespace

int versus(const Plan& plan, const VersusOptions& options) { return Versus(plan, options).run(); }

}  // namespace motley::perf
