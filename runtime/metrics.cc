#include "runtime/metrics.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/error.h"

namespace motley::runtime {

MetricsLog::MetricsLog(const std::string& path) : path_(path), out_(path) {
  if (!out_) throw_errno("create " + path);
}

void MetricsLog::write(const Round& round) {
  out_ << nlohmann::json{{"rank", round.rank},
                         {"step", round.step},
                         {"start", to_seconds(round.start)},
                         {"computed", to_seconds(round.computed)},
                         {"together", to_seconds(round.together)},
                         {"end", to_seconds(round.end)},
                         {"group", round.group}}
              .dump()
       << '\n';
}

void MetricsLog::flush() {
  if (!out_.flush()) throw_errno("write " + path_);
}

std::vector<Round> read_rounds(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw_errno("open " + path);
  std::vector<Round> rounds;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    try {
      const nlohmann::json json = nlohmann::json::parse(line);
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

}  // namespace motley::runtime
