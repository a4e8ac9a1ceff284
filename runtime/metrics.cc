#include "runtime/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "comm/json.h"

namespace motley::runtime {

MetricsLog::MetricsLog(const std::string& path) : path_(path), out_(path) {
  if (!out_) throw_errno("create " + path);
}

void MetricsLog::write(const Round& round) {
  out_ << json_text({{"rank", round.rank},
                     {"step", round.step},
                     {"start", to_seconds(round.start)},
                     {"computed", to_seconds(round.computed)},
                     {"together", to_seconds(round.together)},
                     {"end", to_seconds(round.end)},
                     {"group", round.group}})
       << '\n';
}

void MetricsLog::flush() {
  if (!out_.flush()) throw_errno("write " + path_);
}

ChromeTrace::ChromeTrace(const std::string& path) : path_(path), out_(path) {
  if (!out_) throw_errno("create " + path);
  out_ << "[";
}

ChromeTrace::~ChromeTrace() { out_ << "\n]\n"; }

void ChromeTrace::write(const Round& round) {
  slice("computing", round, round.start, round.computed);
  slice("waiting", round, round.computed, round.together);
  slice("averaging", round, round.together, round.end);
}

void ChromeTrace::slice(const char* name, const Round& round, Duration from, Duration to) {
  if (to <= from) return;
  constexpr double kMicroseconds = 1e6;
  out_ << (std::exchange(first_, false) ? "\n" : ",\n")
       << json_text({{"name", name},
                     {"ph", "X"},
                     {"pid", 0},
                     {"tid", round.rank},
                     {"ts", to_seconds(from) * kMicroseconds},
                     {"dur", to_seconds(to - from) * kMicroseconds},
                     {"args", {{"step", round.step}, {"group", round.group}}}});
}

void ChromeTrace::flush() {
  if (!out_.flush()) throw_errno("write " + path_);
}

std::vector<Round> read_rounds(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw_errno("open " + path);
  std::vector<Round> rounds;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    try {
      const nlohmann::json json = parse_json(line);
      const auto time = [&](const char* key) { return seconds(json.at(key).get<double>()); };
      rounds.push_back({.rank = json.at("rank"),
                        .step = json.at("step"),
                        .start = time("start"),
                        .computed = time("computed"),
                        .together = time("together"),
                        .end = time("end"),
                        .group = json.at("group")});
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("{}:{}: not a round: {}.", path, number, error.what()));
    }
  }
  return rounds;
}

TimeShares time_shares(const std::vector<Round>& rounds) {
  Duration computing{}, waiting{}, averaging{};
  for (const Round& round : rounds) {
    computing += round.computed - round.start;
    waiting += round.together - round.computed;
    averaging += round.end - round.together;
  }
  const double total = to_seconds(computing + waiting + averaging);
  if (total <= 0) return {};
  return {.computing = to_seconds(computing) / total,
          .waiting = to_seconds(waiting) / total,
          .averaging = to_seconds(averaging) / total};
}

void Totals::add(const Round& round) {
  steps_ = std::max(steps_, round.step);
  ++rounds_;
  computing_ += round.computed - round.start;
  waiting_ += round.together - round.computed;
  averaging_ += round.end - round.together;
  ++sizes_[round.group.size()];
}

Duration Totals::step() const noexcept { return steps_ == 0 ? Duration{} : computing_ / steps_; }
Duration Totals::waiting() const noexcept { return rounds_ == 0 ? Duration{} : waiting_ / rounds_; }

std::string Totals::to_prometheus() const {
  std::string text =
      "# HELP motley_rounds_total Averages of this worker, by members of the group.\n"
      "# TYPE motley_rounds_total counter\n";
  for (const auto& [size, rounds] : sizes_) {
    text +=
        fmt::format("motley_rounds_total{{rank=\"{}\",members=\"{}\"}} {}\n", rank_, size, rounds);
  }
  text += fmt::format(
      "# HELP motley_steps_total Local steps of this worker.\n"
      "# TYPE motley_steps_total counter\n"
      "motley_steps_total{{rank=\"{}\"}} {}\n"
      "# HELP motley_seconds_total Time of this worker, by what it did.\n"
      "# TYPE motley_seconds_total counter\n",
      rank_, steps_);
  for (const auto& [phase, time] :
       {std::pair("computing", computing_), std::pair("waiting", waiting_),
        std::pair("averaging", averaging_)}) {
    text += fmt::format("motley_seconds_total{{rank=\"{}\",phase=\"{}\"}} {:.6f}\n", rank_, phase,
                        to_seconds(time));
  }
  return text;
}

namespace {

std::vector<Standing> sorted(std::vector<Standing> workers) {
  if (workers.empty()) return workers;
  std::stable_sort(workers.begin(), workers.end(),
                   [](const Standing& a, const Standing& b) { return a.step > b.step; });
  const Duration median = workers[workers.size() / 2].step;
  for (Standing& each : workers) {
    if (median > Duration{}) each.slowness = to_seconds(each.step) / to_seconds(median);
  }
  return workers;
}

}  // namespace

std::vector<Standing> rank_stragglers(Communicator& comm, const Totals& mine) {
  constexpr std::size_t kNumbers = 4;
  const std::vector<double> own = {static_cast<double>(mine.rank()),
                                   static_cast<double>(mine.steps()), to_seconds(mine.step()),
                                   to_seconds(mine.waiting())};
  std::vector<double> all(kNumbers * static_cast<std::size_t>(comm.size()));
  comm.all_gather(own, all).wait();
  std::vector<Standing> workers;
  for (std::size_t i = 0; i < all.size(); i += kNumbers) {
    workers.push_back({.rank = static_cast<int>(all[i]),
                       .steps = static_cast<std::int64_t>(all[i + 1]),
                       .step = seconds(all[i + 2]),
                       .waiting = seconds(all[i + 3])});
  }
  return sorted(std::move(workers));
}

std::vector<Standing> rank_stragglers(const std::vector<Totals>& workers) {
  std::vector<Standing> standings;
  for (const Totals& each : workers) {
    standings.push_back({.rank = each.rank(),
                         .steps = each.steps(),
                         .step = each.step(),
                         .waiting = each.waiting()});
  }
  return sorted(std::move(standings));
}

std::string to_text(const std::vector<Standing>& standings) {
  std::string text;
  for (const Standing& each : standings) {
    text += fmt::format(
        "worker {}: {:.1f} ms a step, {:.1f} times the median; waits {:.1f} ms a round\n",
        each.rank, 1e3 * to_seconds(each.step), each.slowness, 1e3 * to_seconds(each.waiting));
  }
  return text;
}

}  // namespace motley::runtime
