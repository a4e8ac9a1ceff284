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
  double least = 0;  // of the samples, where they are so few that some may have been held up; or 0
};

struct Ratio {
  double value = 0;
  // The processes of both sides ran equally near to each other. Where no turn offers that, times
  // are compared all the same, and this is false.
  bool alike = true;
};

// What part of the memory's speed a call reaches. Each time is compared with the limit measured
// beside it; where it is shorter than that, the limit was taken while the machine was slow, and
// says nothing.
struct Share {
  std::optional<double> value;  // the median of those that say something; nothing if none does
  int noise = 0;                // times of which nothing can be said
};

class Comparison {
 public:
  enum class Peers { kAll, kDefaultHeap, kKeptHeap };

  explicit Comparison(const std::vector<Competitor>& competitors) : competitors_(competitors) {}

  // One of the same turn takes the place of one that was held up.
  void add(const Point& point, std::size_t competitor, const Reading& reading);
  // Whether that reading shows a process kept from its core rather than a call: it took many times
  // as long as others with as near processes.
  bool held_up(const Point& point, std::size_t competitor, const Reading& reading) const;
  // At how many points a competitor was held up in a turn, among those of a collective on so many
  // ranks.
  int held_up(int ranks, CallKind kind, std::size_t competitor, int round) const;
  // What a point costs if the machine's memory is all that takes time, as measured beside our call
  // with allocated buffers in one turn.
  void add_limit(int ranks, std::size_t bytes, int round, double time);

  const std::vector<Competitor>& competitors() const noexcept { return competitors_; }
  std::vector<Point> points() const;
  bool ran(const Point& point, std::size_t competitor) const {
    return readings(point, competitor) != nullptr;
  }
  // Seconds, the median of its readings but those held up; nothing if there is none.
  std::optional<double> time(const Point& point, std::size_t competitor) const;
  // Of our calls with allocated buffers; nothing where the limit was not measured.
  std::optional<Share> share(const Point& point) const;
  // Of our competitors, that with such buffers.
  std::size_t ours(Buffers buffers) const;
  // The peer with the least median among some, of one always held up its least sample; nothing if
  // none has a reading.
  std::optional<std::size_t> best(const Point& point, Peers among = Peers::kAll) const;
  // Names of the peers without a reading at the point: at it they are not beaten.
  std::vector<std::string> not_run(const Point& point) const;
  // Time of `a` over time of `b`, the median over turns in which both ran and neither was held up;
  // nothing if there is none.
  std::optional<Ratio> ratio(const Point& point, std::size_t a, std::size_t b) const;

 private:
  const std::vector<Reading>* readings(const Point& point, std::size_t competitor) const;

  const std::vector<Competitor>& competitors_;
  std::map<Point, std::map<std::size_t, std::vector<Reading>>> readings_;
  // By ranks and bytes: turns and seconds.
  std::map<std::pair<int, std::size_t>, std::vector<std::pair<int, double>>> limits_;
};

// The middle one of `values`, or the mean of the middle two. They are not empty.
double median(std::vector<double> values);
// Two probes that show the same placement.
bool alike(double probe_ns, double other_ns);

}  // namespace motley::perf
