#include "comm/control/dump_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/control/progress.h"
#include "comm/error.h"

namespace motley {
namespace {

constexpr int kRepeatAfter = 2;  // heartbeats; a lost message costs as much

std::string why_missing(const Message& calls) {
  switch (calls.number) {
    case RankReport::kAbsent:
      return "it has not joined the job";
    case RankReport::kDeparted:
      return "it has left the job";
    case RankReport::kDead:
      return "it is dead: " + calls.value;
    default:
      return "what it told cannot be read";
  }
}

}  // namespace

std::string DumpMaker::begin(const CallDump::Setup& setup, const std::vector<CallRecord>& own,
                             TimePoint now, LogSink log) {
  if (dump_) return dump_->path();
  dump_.emplace(setup, now);
  log_ = std::move(log);
  const std::string path = dump_->path();
  dump_->add(setup.rank, own, now);
  ask(now);
  return path;
}

void DumpMaker::ask(TimePoint now) {
  const std::vector<int> missing = dump_->missing();
  core_.tell({.type = MessageType::kCollect,
              .ranks = {missing.begin(), missing.end()},
              .key = dump_->name()});
  next_ = std::min(now + kRepeatAfter * heartbeat_, dump_->deadline());
  finish_if_whole();
}

void DumpMaker::answer(const Message& tell, const std::vector<CallRecord>& own, TimePoint now) {
  core_.tell({.type = MessageType::kCalls,
              .rank = tell.rank,
              .key = tell.key,
              .value = encode_calls(own, now)});
}

void DumpMaker::take(const Message& calls, TimePoint now) {
  if (!dump_ || calls.key != dump_->name()) return;
  if (calls.number < 0) return dump_.reset();  // another rank makes it
  const auto decoded = calls.number == RankReport::kLive ? decode_calls(calls.value, now)
                                                         : std::optional<std::vector<CallRecord>>{};
  if (decoded) {
    dump_->add(calls.rank, *decoded, now);
  } else {
    dump_->add_missing(calls.rank, why_missing(calls));
  }
  finish_if_whole();
}

void DumpMaker::on_time(TimePoint now) {
  if (!dump_ || now < next_) return;
  if (now >= dump_->deadline()) return finish();
  ask(now);
}

void DumpMaker::finish_if_whole() {
  if (dump_->missing().empty()) finish();
}

void DumpMaker::finish() {
  const auto say = [this](LogLevel level, const std::string& text) {
    if (log_) log_(level, text);
  };
  try {
    dump_->finish();
    say(LogLevel::kInfo, fmt::format("the last calls of all ranks are in {}", dump_->path()));
  } catch (const Error& error) {
    say(LogLevel::kError, error.what());
  }
  dump_.reset();
}

}  // namespace motley
