// comm/executor/piece_average.h: a group averages a model in pieces, from its end to its beginning:
// the first while others are still computed, several under way at once.
//
//   pieces.begin(model);
//   pieces.ready(900, 100);                         // of a thousand elements
//   pieces.start(group, plan, average, timeout);    // as soon as it is known
//   pieces.ready(0, 900);
//   if (!pieces.finish(is_finite)) …                // some member had brought no numbers
//
// The pieces are the same on all members, and so is their order, whatever is complete first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "comm/clock.h"
#include "comm/communicator.h"
#include "comm/executor/group_average.h"
#include "comm/group.h"
#include "comm/request.h"
#include "comm/view.h"

namespace motley {

class PieceAverage {
 public:
  // `bytes` of a piece; the last, at the model's beginning, is what is left.
  PieceAverage(Communicator& comm, std::size_t bytes) : comm_(comm), bytes_(bytes) {}

  // Of a model in host memory nothing is complete yet. What was under way is given up.
  void begin(ConstView own);
  // Elements [first, first + count) will not change any more before finish(). Throws kInvalid for
  // elements that there are not, or that were ready already.
  void ready(std::size_t first, std::size_t count);
  // All of them. Does nothing where they were ready already.
  void ready_all();
  // What is ready is averaged by `group` from now on, each piece within `timeout`. Gives up what
  // another group had under way. Not for damped weights.
  void start(const Group& group, const AveragePlan& plan, View average, Duration timeout);
  bool runs(const GroupTag& tag) const noexcept { return under_way() == tag; }
  // What start() was told of, until finish().
  std::optional<GroupTag> under_way() const noexcept {
    return group_ ? std::optional(group_->tag()) : std::nullopt;
  }
  // Waits for all pieces. False, on all members, if what one of them brought was not finite, though
  // it was told to give.
  //   errors  as all_reduce; kInvalid if some elements were never ready
  bool finish(bool finite);
  void cancel() noexcept;
  // How long the last that finish() returned from was at it, while there was a piece under way:
  // what it took beside the time in which none was ready here. Zero if nothing is known.
  Duration took() const noexcept { return took_; }

 private:
  struct Piece {
    std::size_t first;
    std::size_t count;
    std::size_t missing;  // elements that are not ready
  };

  void start_complete();
  void note_time();

  Communicator& comm_;
  std::size_t bytes_;
  ConstView own_;
  std::vector<Piece> pieces_;                // from the model's end to its beginning
  std::map<std::size_t, std::size_t> done_;  // ready: end by first element, apart from each other
  std::optional<Group> group_;
  AveragePlan plan_;
  View average_;
  Duration timeout_{};
  Duration took_{};
  std::vector<std::int8_t> finite_;  // of all members
  std::vector<Request> requests_;    // of the first so many pieces
};

}  // namespace motley
