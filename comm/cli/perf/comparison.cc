#include "comm/cli/perf/comparison.h"

#include <algorithm>

namespace motley::perf {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

bool alike(double probe_ns, double other_ns) {
  constexpr double kSpread = 1.5;
  return std::max(probe_ns, other_ns) <= kSpread * std::min(probe_ns, other_ns);
}

void Comparison::add(const Point& point, std::size_t competitor, const Reading& reading) {
  std::vector<Reading>& all = readings_[point][competitor];
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const Reading& r) { return r.round == reading.round; });
  if (same == all.end()) {
    all.push_back(reading);
  } else if (reading.time < same->time && held_up(point, competitor, *same)) {
    *same = reading;
  }
}

bool Comparison::held_up(const Point& point, std::size_t competitor, const Reading& reading) const {
  constexpr double kMany = 5;
  const std::vector<Reading>* const all = readings(point, competitor);
  double least = reading.least > 0 ? reading.least : reading.time;
  for (const Reading& other : all != nullptr ? *all : std::vector<Reading>()) {
    if (alike(other.probe_ns, reading.probe_ns)) least = std::min(least, other.time);
  }
  return reading.time > kMany * least;
}

int Comparison::held_up(int ranks, CallKind kind, std::size_t competitor, int round) const {
  int count = 0;
  for (const auto& [point, of_all] : readings_) {
    const auto found = of_all.find(competitor);
    if (point.ranks != ranks || point.kind != kind || found == of_all.end()) continue;
    count += std::any_of(found->second.begin(), found->second.end(), [&](const Reading& reading) {
      return reading.round == round && held_up(point, competitor, reading);
    });
  }
  return count;
}

void Comparison::add_limit(int ranks, std::size_t bytes, int round, double time) {
  limits_[{ranks, bytes}].emplace_back(round, time);
}

std::vector<Point> Comparison::points() const {
  std::vector<Point> result;
  for (const auto& [point, readings] : readings_) result.push_back(point);
  return result;
}

const std::vector<Reading>* Comparison::readings(const Point& point, std::size_t competitor) const {
  const auto at_point = readings_.find(point);
  if (at_point == readings_.end()) return nullptr;
  const auto found = at_point->second.find(competitor);
  return found == at_point->second.end() ? nullptr : &found->second;
}

std::optional<double> Comparison::time(const Point& point, std::size_t competitor) const {
  const std::vector<Reading>* const found = readings(point, competitor);
  if (found == nullptr) return std::nullopt;
  std::vector<double> times;
  for (const Reading& reading : *found) {
    if (!held_up(point, competitor, reading)) times.push_back(reading.time);
  }
  return times.empty() ? std::nullopt : std::optional(median(times));
}

std::optional<Share> Comparison::share(const Point& point) const {
  constexpr double kMost = 1.05;  // two measurements of the same speed differ by so much
  const std::vector<Reading>* const found = readings(point, ours(Buffers::kAllocated));
  const auto limits = limits_.find({point.ranks, point.bytes});
  if (found == nullptr || limits == limits_.end()) return std::nullopt;
  Share result;
  std::vector<double> shares;
  for (const Reading& reading : *found) {
    for (const auto& [round, limit] : limits->second) {
      if (round != reading.round) continue;
      const double share = limit / reading.time;
      if (share > kMost) {
        ++result.noise;
      } else {
        shares.push_back(share);
      }
    }
  }
  if (!shares.empty()) result.value = median(shares);
  return result;
}

std::size_t Comparison::ours(Buffers buffers) const {
  const auto found =
      std::find_if(competitors_.begin(), competitors_.end(), [=](const Competitor& competitor) {
        return competitor.ours && competitor.buffers == buffers;
      });
  return static_cast<std::size_t>(found - competitors_.begin());
}

std::optional<std::size_t> Comparison::best(const Point& point, Peers among) const {
  std::optional<std::size_t> result;
  double least = 0;
  for (std::size_t i = 0; i < competitors_.size(); ++i) {
    const Competitor& competitor = competitors_[i];
    if (competitor.ours) continue;
    if (among == Peers::kDefaultHeap && competitor.heap != Heap::kDefault) continue;
    if (among == Peers::kKeptHeap && competitor.heap != Heap::kKept) continue;
    const std::vector<Reading>* const found = readings(point, i);
    if (found == nullptr) continue;
    const double mine = time(point, i).value_or(found->front().least);
    if (result && mine >= least) continue;
    result = i;
    least = mine;
  }
  return result;
}

std::vector<std::string> Comparison::not_run(const Point& point) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < competitors_.size(); ++i) {
    const bool ran = competitors_[i].ours || readings(point, i) != nullptr;
    if (!ran) names.push_back(competitors_[i].name);
  }
  return names;
}

std::optional<Ratio> Comparison::ratio(const Point& point, std::size_t a, std::size_t b) const {
  const std::vector<Reading>* const first = readings(point, a);
  const std::vector<Reading>* const second = readings(point, b);
  if (first == nullptr || second == nullptr) return std::nullopt;
  std::vector<double> like, unlike;
  for (const Reading& mine : *first) {
    for (const Reading& other : *second) {
      if (mine.round != other.round || held_up(point, a, mine) || held_up(point, b, other))
        continue;
      (alike(mine.probe_ns, other.probe_ns) ? like : unlike).push_back(mine.time / other.time);
    }
  }
  if (!like.empty()) return Ratio{median(like), true};
  if (!unlike.empty()) return Ratio{median(unlike), false};
  return std::nullopt;
}

}  // namespace motley::perf
