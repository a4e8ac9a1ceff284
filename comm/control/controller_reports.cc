// What the controller tells ranks of each other's calls.
#include <algorithm>
#include <charconv>
#include <numeric>
#include <string>

#include "comm/control/controller_core.h"
#include "comm/control/progress.h"

namespace motley {
namespace {

// Ranks that ask for the same dump within this time have failed at the same call: one makes it.
constexpr Duration kOneDump = std::chrono::seconds(10);
constexpr std::size_t kDumps = 64;  // remembered

}  // namespace

// Tells where the members of a call are, those that have not begun it first if not all can be told.
void ControllerCore::report(int rank, const Message& message) {
  std::vector<std::int32_t> ranks = message.ranks;
  if (ranks.empty()) {
    ranks.resize(members_.size());
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  std::erase_if(ranks, [&](std::int32_t r) { return r < 0 || r >= config_.size; });
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::stable_partition(ranks.begin(), ranks.end(), [&](std::int32_t r) {
    const auto progress = decode_progress(member(r).progress, now_);
    return member(r).state != State::kLive || !progress ||
           !has_begun(*progress, message.tag, static_cast<std::uint32_t>(message.number));
  });
  const std::size_t told = std::min(ranks.size(), kMaxReportRanks);
  std::sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(told));
  std::vector<ReportEntry> entries;
  for (std::size_t i = 0; i < told; ++i) {
    const Member& each = member(ranks[i]);
    // The times in its progress count from when that was told; it may have been heard since.
    const TimePoint since = each.progress.empty() ? each.heard : each.progress_time;
    entries.push_back({.rank = ranks[i],
                       .state = static_cast<RankReport::State>(each.state),
                       .silent = each.state == State::kAbsent ? Duration(0) : now_ - since,
                       .progress = each.progress});
  }
  answer(rank, Lane::kReport,
         {.type = MessageType::kValue,
          .value = encode_report(entries, static_cast<std::uint32_t>(ranks.size() - told))});
}

// The first rank that makes a dump of this name makes it for all.
void ControllerCore::collect(int rank, const Message& message) {
  const auto found = std::find_if(dumps_.begin(), dumps_.end(),
                                  [&](const Dump& dump) { return dump.name == message.key; });
  if (found == dumps_.end()) {
    if (dumps_.size() == kDumps) dumps_.pop_front();
    dumps_.push_back({.name = message.key, .rank = rank, .asked = now_});
  } else if (found->rank != rank && now_ - found->asked < kOneDump) {
    return send(
        member(rank).identity,
        {.type = MessageType::kCalls, .rank = found->rank, .number = -1, .key = message.key});
  } else {
    *found = {.name = message.key, .rank = rank, .asked = now_};
  }
  for (const std::int32_t wanted : message.ranks) {
    if (wanted < 0 || wanted >= config_.size) continue;
    const Member& each = member(wanted);
    if (each.state == State::kLive) {
      send(each.identity, {.type = MessageType::kTell, .rank = rank, .key = message.key});
    } else {
      send(member(rank).identity, {.type = MessageType::kCalls,
                                   .rank = wanted,
                                   .number = static_cast<std::int64_t>(each.state),
                                   .key = message.key,
                                   .value = each.why});
    }
  }
}

void ControllerCore::recall(int rank, const Message& message) {
  member(rank).recalled = true;
  answer(rank, Lane::kMemory, {.type = MessageType::kOk});
  const auto recollection = decode_recollection(message.value);
  if (!recollection) return;
  for (const auto& [key, value] : recollection->values) {
    if (!values_.contains(key)) set(key, value);
  }
  for (const auto& [key, counter] : recollection->counters) {
    const auto known = values_.find(key);
    std::int64_t sum = counter;
    if (known != values_.end()) {
      const char* end = known->second.data() + known->second.size();
      std::int64_t before = 0;
      if (std::from_chars(known->second.data(), end, before).ptr == end)
        sum = std::max(sum, before);
    }
    set(key, std::to_string(sum));
  }
  for (const auto& [name, supply] : recollection->supplies) supplies_.recall(rank, name, supply);
}

// Every rank that lives has told, and those that have not come back have had their time.
bool ControllerCore::remembers_all() {
  if (remembers_) return true;
  remembers_ = std::none_of(members_.begin(), members_.end(), [this](const Member& each) {
    if (each.state == State::kAbsent) return rebuilt_ != TimePoint::max();
    return each.state == State::kLive && !each.recalled;
  });
  return remembers_;
}

void ControllerCore::pass_on_calls(int rank, const Message& message) {
  const bool wanted = message.rank >= 0 && message.rank < config_.size &&
                      member(message.rank).state == State::kLive &&
                      message.value.size() <= kMaxCallsBytes;
  if (!wanted) return;
  send(member(message.rank).identity, {.type = MessageType::kCalls,
                                       .rank = rank,
                                       .number = static_cast<std::int64_t>(State::kLive),
                                       .key = message.key,
                                       .value = message.value});
}

}  // namespace motley
