// moe/cost_model.h: how long an operation of a program takes: the one model that planners and the
// simulator share, fitted to what the executor measured.
//
//   CostModel costs(comm.topology());
//   for (int op = 0; op < ops; ++op) costs.observe(program.ops[op], timeline.ops[op].time());
//   costs.fit();
//   Duration next = costs.time(other.ops[0]);
//   write(path, costs.to_text());                 // CostModel::parse() reads it again
//
// Each kind of operation has a curve: its time is a sum, none of whose terms is negative, of
//   - a time for each operation and each product in it;
//   - a time for each byte that it reads and writes;
//   - work times the curve's height at a size. Work is multiplications and additions, the size the
//     rows of a product; of all-to-alls work is the price that comm puts on the call
//     (comm/price.h), of what only moves memory bytes, and the size bytes. Between knots, which
//     stand at powers of four, the height goes linearly with the logarithm of the size.
// fit() finds the terms that make the mean of relative errors least, those too high and too low
// alike, by the last 1,024 of each kind. What has not been
// observed follows from its neighbours on the curve; a kind never observed from the defaults, which
// are those of one core of today. One thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/clock.h"
#include "comm/topology.h"
#include "moe/program.h"

namespace motley::moe {

class CostModel {
 public:
  explicit CostModel(Topology topology);

  const Topology& topology() const noexcept { return topology_; }

  // That `op` would take if nothing else ran, all ranks of a collective being there from the start.
  // Of all-to-alls the longest of this rank's ways, out and in, counts.
  //   cost  below a microsecond for compute; the first all-to-all of a size costs price()
  Duration time(const Op& op) const;
  // The same of a collective of which all ranks' operations are known: the longest way of all.
  Duration time(std::span<const Op* const> ops) const;

  // What `op` took. Of no effect on time() before fit().
  void observe(const Op& op, Duration measured);
  void fit();
  std::int64_t observed(OpKind kind) const noexcept;

  // JSON, with what was observed, so that it can be gone on with.
  std::string to_text() const;
  // Throws kInvalid, as `file`, for what to_text() did not write.
  static CostModel parse(const std::string& text, const std::string& file, Topology topology);

 private:
  static constexpr int kKnots = 14;          // 4^0 to 4^13
  static constexpr int kTerms = 2 + kKnots;  // time each, time a byte, the curve
  static constexpr std::int64_t kRemembered = 1024;
  using Terms = std::array<double, kTerms>;

  struct Observation {
    Terms terms{};
    double seconds = 0;
  };
  // Of one kind. Heights are multiples of the defaults.
  struct Curve {
    Terms scale{};                      // the defaults
    Terms height{};                     // fitted; 1 at first
    std::vector<Observation> recent{};  // the last kRemembered
    std::int64_t observed = 0;
  };

  Terms terms_of(const Op& op, std::int64_t longest) const;
  double priced(const std::string& algorithm, std::int64_t bytes) const;
  static double evaluate(const Curve& curve, const Terms& terms);
  static void fit(Curve& curve);

  Topology topology_;
  std::array<Curve, kOpKinds> curves_;
  // Prices of comm by algorithm and binary logarithm of bytes, in seconds.
  mutable std::map<std::pair<std::string, int>, double> prices_;
};

// How far predictions were from what was measured, by kind, as multiples of the measured time.
class Accuracy {
 public:
  void add(OpKind kind, Duration predicted, Duration measured);
  double median() const;  // of |predicted - measured| / measured; 0 for none
  double percentile(double share) const;
  // A line for each kind, and one for all: number, median, 95th percentile.
  std::string to_text() const;

 private:
  std::map<OpKind, std::vector<double>> errors_;
};

}  // namespace motley::moe
