// comm/group/group_sizer.h: how many ranks a group has, where nobody says. What ranks tell of
// themselves in, P out.
//
// Small groups wait for few; large ones bring models together sooner. So P grows while models are
// further apart than their steps explain, and shrinks while ranks wait long although the models are
// close. Where all ranks are alike there is nobody to wait for: then all of them average together,
// as all_reduce does, until one falls behind. That is tried first, as soon as steps are known.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/clock.h"
#include "comm/group/sketch.h"

namespace motley {

class GroupSizer {
 public:
  static constexpr int kFirst = 4;  // P at the beginning: three quarters of the best mixing
  static constexpr int kLargest = 8;
  static constexpr double kAlike = 0.08;  // coefficient of variation of steps: all average
  static constexpr double kAboutAlike = 0.15;
  static constexpr double kNotAlike = 0.12;        // no more
  static constexpr double kFirstVariation = 0.05;  // while nothing is known of steps
  static constexpr double kFarApart = 2.0;         // distance of models over that of a step: P + 1
  static constexpr double kClose = 1.5;            // P - 1, where ranks wait
  static constexpr double kMuchWaiting = 0.1;      // share of the time
  static constexpr int kMany = 4;                  // more than one in so many
  static constexpr int kForgotten = 16;            // rounds of all, after which one without some is

  explicit GroupSizer(int size) : ranks_(static_cast<std::size_t>(size)) {}

  // For `live` ranks.
  int size(int live) const noexcept { return all_ ? live : part(live); }
  // While not all average together: without one that may be slow.
  int part(int live) const noexcept;
  bool all() const noexcept { return all_; }
  // It was just decided that all average together, who come out of smaller groups at different
  // times.
  bool gathers() const noexcept { return all_ && gathers_; }
  // Coefficient of variation of steps, when it was last decided that all are alike.
  double variation_of_all() const noexcept { return variation_of_all_; }

  // `rank` is ready `step` after its last group, with a model that has moved by `moved`.
  void ready(int rank, Duration step, const Sketch& sketch, double moved);
  // A group of `members` ranks formed, which had waited for `waiting` together; `live` can come.
  void formed(int members, Duration waiting, int live);
  // A rank has died, or come: whoever seemed alike may be no more. Before anybody's step is known
  // nobody has seemed so: at the beginning of a training all come.
  void disturbed() noexcept { disturbed_ = begun_; }
  // All were to average together, and those that had come went on without `missing` of `live`. The
  // second time in so many rounds of all, or if they are many, ranks are not alike any more.
  void left_some(int missing, int live) noexcept;
  void remove(int rank);

  // Root mean square distance of the models from their mean, as the sketches show it.
  double consensus() const noexcept;
  double moved() const noexcept;

 private:
  struct Rank {
    bool known = false;
    Sketch sketch{};
    double moved2 = 0;
    std::uint64_t period = 0;  // in which it was ready last
  };

  void decide(int live);
  enum class Longest : std::uint8_t { kCounts, kForgiven };
  double variation(Longest longest) const noexcept;
  void begin_period() noexcept;

  std::vector<Rank> ranks_;
  // Of all ranks known.
  int known_ = 0;
  double sum_[std::tuple_size_v<Sketch>] = {};
  double squares_ = 0;
  double moved2_ = 0;

  int p_ = kFirst;
  bool all_ = true;
  double variation_of_all_ = kFirstVariation;
  bool about_alike_ = true;  // so P had better divide the ranks
  bool gathers_ = false;
  int since_left_ = kForgotten;  // rounds of all since one without some
  bool begun_ = false;           // a step is known
  // Since the last decision.
  std::uint64_t period_ = 1;
  int heard_ = 0;  // ranks that were ready
  std::int64_t taken_part_ = 0;
  std::int64_t steps_ = 0;
  double step_sum_ = 0;
  double step_squares_ = 0;
  double longest_ = 0;  // step
  double waited_ = 0;
  bool disturbed_ = false;
};

}  // namespace motley
