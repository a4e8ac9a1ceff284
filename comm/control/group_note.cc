#include "comm/control/group_note.h"

#include <cmath>

#include "comm/control/packing.h"
#include "comm/error.h"

namespace motley {
namespace {

bool take_bool(Unpacker& in) {
  const auto value = in.take<std::uint8_t>();
  in.refuse_unless(value <= 1);
  return value == 1;
}

// Sums of a few such, and of times, do not overflow.
Duration take_duration(Unpacker& in) {
  const auto value = in.take<Duration::rep>();
  in.refuse_unless(value >= 0 && Duration(value) <= std::chrono::hours(1 << 10));
  return Duration(value);
}

void put_grouping(std::string& out, const Grouping& grouping) {
  put(out, grouping.group_size);
  put(out, grouping.largest_group);
  put(out, grouping.linger);
  put(out, static_cast<std::uint8_t>(grouping.guard));
  const Weighting& weighting = grouping.weighting;
  put(out, static_cast<std::uint8_t>(weighting.rule));
  put(out, weighting.lambda);
  put(out, weighting.slope);
  put(out, weighting.slack);
  put(out, weighting.clip);
  put(out, static_cast<std::uint8_t>(weighting.damped));
}

bool is_valid(const Weighting& weighting) {
  try {
    check(weighting);
    return true;
  } catch (const Error&) {
    return false;
  }
}

Grouping take_grouping(Unpacker& in) {
  Grouping grouping;
  grouping.group_size = in.take<int>();
  grouping.largest_group = in.take<int>();
  grouping.linger = in.take<double>();
  grouping.guard = static_cast<Guard>(in.take<std::uint8_t>());
  Weighting& weighting = grouping.weighting;
  weighting.rule = static_cast<WeightRule>(in.take<std::uint8_t>());
  weighting.lambda = in.take<double>();
  weighting.slope = in.take<double>();
  weighting.slack = in.take<std::int64_t>();
  weighting.clip = in.take<std::int64_t>();
  weighting.damped = take_bool(in);
  in.refuse_unless(grouping.group_size >= 0 && grouping.largest_group >= 0 &&
                   grouping.linger >= 0 && grouping.linger <= 1 && grouping.guard <= Guard::kNone &&
                   is_valid(weighting));
  return grouping;
}

}  // namespace

std::string encode(const ReadyNote& note) {
  std::string out;
  put_grouping(out, note.grouping);
  put(out, note.version);
  put(out, static_cast<std::uint8_t>(note.gives));
  put(out, static_cast<std::uint8_t>(note.large));
  for (const float value : note.sketch) put(out, value);
  put(out, note.moved);
  put(out, note.eta.count());
  put(out, note.round_trip.count());
  put(out, note.ahead.count());
  return out;
}

std::optional<ReadyNote> decode_ready(std::string_view bytes) {
  Unpacker in(bytes);
  ReadyNote note;
  note.grouping = take_grouping(in);
  note.version = in.take<std::int64_t>();
  note.gives = take_bool(in);
  note.large = take_bool(in);
  for (float& value : note.sketch) {
    value = in.take<float>();
    in.refuse_unless(std::isfinite(value));
  }
  note.moved = in.take<float>();
  in.refuse_unless(std::isfinite(note.moved));
  note.eta = take_duration(in);
  note.round_trip = take_duration(in);
  note.ahead = take_duration(in);
  if (!in.at_end()) return std::nullopt;
  return note;
}

std::string encode(const GroupNote& note) {
  std::string out;
  put(out, static_cast<std::uint8_t>(note.large));
  put(out, note.version);
  put(out, note.donor);
  put(out, note.begins.count());
  put(out, static_cast<std::uint32_t>(note.keepers.size()));
  for (const int rank : note.keepers) put(out, rank);
  for (const double weight : note.weights) put(out, weight);
  return out;
}

std::optional<GroupNote> decode_group(std::string_view bytes) {
  Unpacker in(bytes);
  GroupNote note;
  note.large = take_bool(in);
  note.version = in.take<std::int64_t>();
  note.donor = in.take<int>();
  note.begins = take_duration(in);
  for (auto left = in.take<std::uint32_t>(); left > 0 && in.ok(); --left) {
    note.keepers.push_back(in.take<int>());
    in.refuse_unless(note.keepers.back() >= 0);
  }
  while (in.ok() && !in.at_end()) {
    note.weights.push_back(in.take<double>());
    in.refuse_unless(note.weights.back() >= 0 && note.weights.back() <= 1);
  }
  if (!in.ok()) return std::nullopt;
  return note;
}

}  // namespace motley
