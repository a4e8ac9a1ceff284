// comm/control/progress.h: where ranks are among their calls, as their signs of life say it and as
// the controller tells it on.
//
// Times travel as ages, because clocks of hosts differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/clock.h"
#include "comm/recorder.h"

namespace motley {

// Of one rank. Of each call all but its algorithm, its messages' times and its bytes is told.
struct Progress {
  std::optional<CallRecord> running;  // the oldest call under way
  std::optional<CallRecord> started;  // the latest to begin
  std::optional<CallRecord> done;     // the last completed

  static Progress of(const Recorder& recorder);
};

inline constexpr std::size_t kMaxProgressBytes = 256;

std::string encode(const Progress& progress, TimePoint now);
// Nothing if `bytes` are not what encode() gives. Times are counted back from `now`.
std::optional<Progress> decode_progress(std::string_view bytes, TimePoint now);

// The whole of a recorder's calls, for a dump (call_dump.h).
inline constexpr std::size_t kMaxCallsBytes = 160 << 10;

std::string encode_calls(const std::vector<CallRecord>& calls, TimePoint now);
// Nothing if `bytes` are not what encode_calls() gives of at most Recorder::kCalls.
std::optional<std::vector<CallRecord>> decode_calls(std::string_view bytes, TimePoint now);

// Whether a rank has begun call `number` of `group`, as far as its progress shows.
bool has_begun(const Progress& progress, const GroupTag& group, std::uint32_t number) noexcept;

// What the controller knows of one rank.
struct RankReport {
  enum State : std::uint8_t { kAbsent, kLive, kDeparted, kDead };

  int rank = 0;
  State state = kAbsent;
  TimePoint heard{};  // when it gave its last sign of life; kLive
  Progress progress;
};

struct Report {
  std::vector<RankReport> ranks;  // ascending
  std::uint32_t left_out = 0;     // ranks that are further on, of which it does not tell

  const RankReport* find(int rank) const noexcept;
};

// At most so many ranks are told of, those that are behind first.
inline constexpr std::size_t kMaxReportRanks = 64;

// One rank for a report on its way: its progress still as it was sent, at `heard`.
struct ReportEntry {
  int rank = 0;
  RankReport::State state = RankReport::kAbsent;
  Duration silent{};
  std::string_view progress;
};

std::string encode_report(const std::vector<ReportEntry>& entries, std::uint32_t left_out);
std::optional<Report> decode_report(std::string_view bytes, TimePoint now);

}  // namespace motley
