// The times that --versus has gathered, and what they say: who is best at a point, and by how much.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "comm/cli/perf/cell.h"
#include "comm/cli/perf/competitor.h"

namespace motley::perf {

struct Point {
  int ranks = 0;
  CallKind kind = CallKind::kAllReduce;
  Place place = Place::kIn;
  std::size_t bytes = 0;
  friend auto operator<=>(const Point&, const Point&) = default;
};

// One time of one competitor: in turn `round`, with the placement probe taken beside it.
struct Reading {
  int round = 0;
  double time = 0;  // seconds
  double probe_ns = 0;
};

struct Ratio {
  double value = 0;
  // The processes of both sides ran equally near to each other. Where no turn offers that, times
  // are compared all the same, and this is false.
  bool alike = true;
};

class Comparison {
 public:
  enum class Peers { kAll, kDefaultHeap, kKeptHeap };

  explicit Comparison(const std::vector<Competitor>& competitors) : competitors_(competitors) {}

  void add(const Point& point, std::size_t competitor, const Reading& reading);
  // What a point costs if the machine's memory is all that takes time.
  void set_limit(int ranks, std::size_t bytes, double time) { limits_[{ranks, bytes}] = time; }

  const std::vector<Competitor>& competitors() const noexcept { return competitors_; }
  std::vector<Point> points() const;
  // Seconds, the median of its readings; nothing if there is none.
  std::optional<double> time(const Point& point, std::size_t competitor) const;
  std::optional<double> limit(const Point& point) const;
  // Of our competitors, that with such buffers.
  std::size_t ours(Buffers buffers) const;
  // The peer with the least median among some; nothing if none has a reading.
  std::optional<std::size_t> best(const Point& point, Peers among = Peers::kAll) const;
  // Names of the peers without a reading at the point: at it they are not beaten.
  std::vector<std::string> not_run(const Point& point) const;
  // Time of `a` over time of `b`, the median over turns in which both ran.
  std::optional<Ratio> ratio(const Point& point, std::size_t a, std::size_t b) const;

 private:
  const std::vector<Reading>* readings(const Point& point, std::size_t competitor) const;

  const std::vector<Competitor>& competitors_;
  std::map<Point, std::map<std::size_t, std::vector<Reading>>> readings_;
  std::map<std::pair<int, std::size_t>, double> limits_;
};

// Two probes that show the same placement.
bool alike(double probe_ns, double other_ns);

}  // namespace motley::perf
