// comm/executor/partial_reducer.h: what is behind comm/partial_reduce.h. Averages as a whole are in
// comm/partial_reduce.cc, those that begin before a step ends in partial_pieces.cc.
#pragma once

#include <cstdint>
#include <optional>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/executor/group_average.h"
#include "comm/executor/lossy_average.h"
#include "comm/executor/model_copies.h"
#include "comm/executor/piece_average.h"
#include "comm/group/average_time.h"
#include "comm/group/patience.h"
#include "comm/group/sketch.h"
#include "comm/group/step_estimate.h"
#include "comm/partial_reduce.h"

namespace motley {

struct PartialReducer::Impl {
  Impl(Communicator& comm_, const PartialOptions& options_);

  // A step that is averaged in pieces.
  struct Begun {
    View data;
    std::int64_t step;
  };

  enum class Part : std::uint8_t { kGives, kTakes };
  PartialResult average(View data, std::int64_t step, StreamRef stream, Part part,
                        const std::optional<Begun>& begun_before = {});
  void begin(View data, std::int64_t step, Duration eta);
  void ready(std::size_t first, std::size_t count);
  void start_pieces();
  PartialResult finish();
  bool in_pieces() const noexcept {
    return options.piece_bytes > 0 && !options.weighting.damped &&
           options.payload == Payload::kExact;
  }
  AveragePlan plan_of(const GroupOutcome& outcome) const;
  bool average_once(const Group& group, const GroupOutcome& outcome, const ReadyNote& note,
                    ConstView own, View average, Duration most);
  void announce(std::int64_t step, Duration eta, Duration ahead = {});
  void take_announcement(std::int64_t step, TimePoint now);
  void check_left(std::int64_t step) const;
  Duration patience_for(const GroupOutcome& outcome, TimePoint deadline) const;
  std::int64_t version_at(std::int64_t step) const {
    return version ? *version + (step - last_step) : step;
  }
  ReadyNote look_at(ConstView own, std::int64_t step);
  Grouping grouping() const;
  GroupOutcome wait_for_group(std::int64_t step, const ReadyNote& note, TimePoint deadline);
  GroupOutcome run(GroupOutcome outcome, const ReadyNote& note, View data, ConstView own,
                   TimePoint deadline, PartialResult& result);
  void hand_on(const GroupOutcome& outcome, TimePoint deadline) noexcept;
  void withdraw() noexcept;
  void leave(Duration patience);

  Communicator& comm;
  ControlClient* control;  // null with one rank
  PartialOptions options;
  ModelCopies copies;
  View last_average;  // of the last group, for members that have not completed it
  GroupAverage group_average;
  LossyAverage lossy_average;
  PieceAverage pieces;
  std::optional<Begun> begun;
  std::optional<std::int64_t> version;  // of the model after the last average
  std::int64_t last_step = 0;           // of that
  Sketch last_sketch{};                 // of that model
  ReadyNote last_note{};
  Patience usual_patience;
  struct Announcement {
    std::int64_t step;
    TimePoint at;
  };
  std::optional<Announcement> announcement;
  StepEstimate usual_eta;     // from announce() to average()
  AverageTime usual_average;  // of one in pieces
  int steps_away = 0;         // in a row, without a controller
  bool left = false;
};

}  // namespace motley
