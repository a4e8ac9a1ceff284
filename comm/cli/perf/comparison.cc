#include "comm/cli/perf/comparison.h"

#include <algorithm>

#include "comm/cli/perf/sampling.h"

namespace motley::perf {

bool alike(double probe_ns, double other_ns) {
  constexpr double kSpread = 1.5;
  return std::max(probe_ns, other_ns) <= kSpread * std::min(probe_ns, other_ns);
}

void Comparison::add(const Point& point, std::size_t competitor, const Reading& reading) {
  readings_[point][competitor].push_back(reading);
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
  for (const Reading& reading : *found) times.push_back(reading.time);
  return quantile(times, 0.5);
}

std::optional<double> Comparison::limit(const Point& point) const {
  const auto found = limits_.find({point.ranks, point.bytes});
  if (found == limits_.end()) return std::nullopt;
  return found->second;
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
    const auto mine = time(point, i);
    if (!mine || (result && *mine >= least)) continue;
    result = i;
    least = *mine;
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
      if (mine.round != other.round) continue;
      (alike(mine.probe_ns, other.probe_ns) ? like : unlike).push_back(mine.time / other.time);
    }
  }
  if (!like.empty()) return Ratio{quantile(like, 0.5), true};
  if (!unlike.empty()) return Ratio{quantile(unlike, 0.5), false};
  return Ratio{*time(point, a) / *time(point, b), false};
}

}  // namespace motley::perf
