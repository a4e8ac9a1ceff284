// comm/control/group_note.h: what kReady and kGroup carry in Message::value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/clock.h"
#include "comm/group/sketch.h"
#include "comm/grouping.h"

namespace motley {

// What a rank that is ready tells of itself.
struct ReadyNote {
  Grouping grouping;
  std::int64_t version = 0;  // of its model; see weights.h
  // False: it takes the average and gives nothing, because it joins, or what it has is no number.
  bool gives = true;
  // What it gives may add up to no number; its group weighs it before it adds it.
  bool large = false;
  // Of its model, and how far it has moved since its last average.
  Sketch sketch{};
  float moved = 0;
  // Not zero: it is not ready yet, but expects to be after so long; and what a message to the
  // controller and its answer take. Of its model it tells what it was after its last average.
  Duration eta{};
  Duration round_trip{};
  // So long before it is ready, a group is of use to it: what it has by then is averaged meanwhile.
  Duration ahead{};
  friend bool operator==(const ReadyNote&, const ReadyNote&) = default;
};

// What the members of a group are to do.
struct GroupNote {
  std::vector<double> weights;  // by member
  bool large = false;           // what one of them gives is
  std::int64_t version = 0;     // of the average
  int donor = -1;  // not -1: all take the last average of this member, which has completed it
  // So have these, which are not among the members: who fails names them, too, as a controller
  // that is started again knows of none of them.
  std::vector<int> keepers;
  Duration begins{};  // after so long at most, all members have begun or are dropped
  friend bool operator==(const GroupNote&, const GroupNote&) = default;
};

std::string encode(const ReadyNote& note);
std::string encode(const GroupNote& note);
// Nothing if the bytes are not exactly one note with values in their ranges.
std::optional<ReadyNote> decode_ready(std::string_view bytes);
std::optional<GroupNote> decode_group(std::string_view bytes);

}  // namespace motley
