#include "comm/control/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace motley {
namespace {

constexpr std::size_t kExplained = 4;  // ranks that are behind get a sentence each, so many
constexpr std::size_t kOwnCalls = 8;   // of this rank, in its status

std::string ago(TimePoint event, TimePoint now) {
  return fmt::format("{:.1f} s ago", to_seconds(now - event));
}

// "all_reduce #17 (1024 float32, sum) since 3.0 s", or what came last.
std::string doing(const Progress& progress, TimePoint now) {
  if (progress.running) {
    return fmt::format("in {} since {:.1f} s", to_text(*progress.running),
                       to_seconds(now - progress.running->started));
  }
  if (!progress.started) return "without any call so far";
  return fmt::format("in no call since {} ended {}", to_text(*progress.started),
                     ago(progress.started->ended, now));
}

enum class Place { kInCall, kNotThere, kSilent, kGone };

Place place_of(const RankReport& rank, const LateCall& call, TimePoint now) {
  if (rank.state != RankReport::kLive) return Place::kGone;
  if (now - rank.heard >= call.silence) return Place::kSilent;
  return has_begun(rank.progress, call.group, call.number) ? Place::kInCall : Place::kNotThere;
}

std::string sentence(const RankReport& rank, Place place, TimePoint now) {
  switch (place) {
    case Place::kInCall:
      return fmt::format(" Rank {} is {}.", rank.rank, doing(rank.progress, now));
    case Place::kNotThere:
      return fmt::format(" Rank {} has not begun it: {} as of {}.", rank.rank,
                         doing(rank.progress, now), ago(rank.heard, now));
    case Place::kSilent:
      return fmt::format(" Rank {} was last heard {}, {}.", rank.rank, ago(rank.heard, now),
                         doing(rank.progress, now));
    case Place::kGone:
      break;
  }
  const char* const state = rank.state == RankReport::kDead       ? "is dead"
                            : rank.state == RankReport::kDeparted ? "has left the job"
                                                                  : "has not joined the job";
  return fmt::format(" Rank {} {}.", rank.rank, state);
}

// " Last completed: all_reduce #1579 by ranks 0, 1; nothing by rank 2."
std::string last_completed(const std::vector<const RankReport*>& ranks) {
  std::map<std::string, std::vector<int>> by_call;
  for (const RankReport* rank : ranks) {
    const auto& done = rank->progress.done;
    by_call[done ? fmt::format("{} #{}", name(done->kind), done->number) : "nothing"].push_back(
        rank->rank);
  }
  std::string text;
  for (const auto& [call, who] : by_call) {
    text += fmt::format("{}{} by rank{} {}", text.empty() ? " Last completed: " : "; ", call,
                        who.size() == 1 ? "" : "s", fmt::join(who, ", "));
  }
  return text.empty() ? text : text + ".";
}

}  // namespace

Diagnosis diagnose(const Report& report, const LateCall& call, TimePoint now) {
  std::vector<const RankReport*> members;
  std::map<Place, std::vector<const RankReport*>> at;
  for (const RankReport& rank : report.ranks) {
    const bool member = call.members.empty() || std::find(call.members.begin(), call.members.end(),
                                                          rank.rank) != call.members.end();
    if (!member) continue;
    members.push_back(&rank);
    if (rank.rank != call.rank) at[place_of(rank, call, now)].push_back(&rank);
  }
  Diagnosis diagnosis;
  // Who is gone keeps those waiting that wait for it: only the first cause is to blame.
  for (const Place place : {Place::kGone, Place::kSilent, Place::kNotThere}) {
    if (at[place].empty()) continue;
    for (const RankReport* rank : at[place]) {
      if (diagnosis.behind.size() < kExplained) diagnosis.text += sentence(*rank, place, now);
      diagnosis.behind.push_back(rank->rank);
    }
    break;
  }
  if (diagnosis.behind.empty() && !members.empty()) diagnosis.text += " All members have begun it.";
  diagnosis.text += last_completed(members);
  if (report.left_out > 0) {
    diagnosis.text += fmt::format(" {} more ranks have begun it.", report.left_out);
  }
  return diagnosis;
}

std::string status_text(const std::string& who, const Recorder& recorder, const Report* report,
                        TimePoint now) {
  const char* const states[] = {"running", "done", "failed"};
  std::string text = fmt::format("{}: {}\n", who, doing(Progress::of(recorder), now));
  for (const CallRecord& call : recorder.last(kOwnCalls)) {
    text += fmt::format("  {}: {}, began {}, {} bytes received", to_text(call), states[call.state],
                        ago(call.started, now), call.bytes);
    if (call.bytes != 0) text += fmt::format(", the last {}", ago(call.last_arrival, now));
    text += call.state == CallRecord::kRunning ? "\n"
                                               : fmt::format(", ended {}\n", ago(call.ended, now));
  }
  if (report == nullptr)
    return text + "  where the others are is not known: no controller answers\n";
  for (const RankReport& rank : report->ranks) {
    const Place place = rank.state == RankReport::kLive ? Place::kInCall : Place::kGone;
    text += " " + sentence(rank, place, now) + "\n";
  }
  if (report->left_out > 0) text += fmt::format("  and {} more ranks\n", report->left_out);
  return text;
}

}  // namespace motley
