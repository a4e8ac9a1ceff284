#include "comm/control/call_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "comm/error.h"
#include "comm/json.h"

namespace motley {
namespace {

// A JSON string. What is no text is replaced.
std::string json_string(const std::string& text) {
  return json_text(text, -1, nlohmann::json::error_handler_t::replace);
}

std::string seconds_before(TimePoint event, TimePoint now) {
  if (event == TimePoint{}) return "null";
  return fmt::format("{:.6f}", to_seconds(now - event));
}

std::string line_of(int rank, const CallRecord& call, TimePoint now) {
  const char* const states[] = {"running", "done", "failed"};
  return fmt::format(
      R"({{"rank": {}, "call": "{}", "number": {}, "group": {}, "epoch": {}, "attempt": {}, )"
      R"("state": "{}", "algorithm": "{}", "dtype": "{}", "op": "{}", "count": {}, "bytes": {}, )"
      R"("began_s": {}, "first_message_s": {}, "last_message_s": {}, "ended_s": {}}})",
      rank, motley::name(call.kind), call.number, call.group.id, call.group.epoch,
      call.group.attempt, states[call.state], call.algorithm, motley::name(call.dtype),
      motley::name(call.op), call.count, call.bytes, seconds_before(call.started, now),
      seconds_before(call.first_message, now), seconds_before(call.last_arrival, now),
      seconds_before(call.ended, now));
}

std::string partial(const std::string& path, int rank) {
  return fmt::format("{}.rank{}.partial", path, rank);
}

}  // namespace

CallDump::CallDump(Setup setup, TimePoint now)
    : setup_(std::move(setup)),
      path_(fmt::format("{}/{}.jsonl", setup_.folder, setup_.name)),
      started_(now),
      file_(partial(path_, setup_.rank)),
      heard_(static_cast<std::size_t>(setup_.size)) {
  if (!file_) throw_errno("write the calls of all ranks to " + path_);
  write(fmt::format(R"({{"dump": {}, "why": {}, "by": {}, "ranks": {}}})", json_string(setup_.name),
                    json_string(setup_.why), setup_.rank, setup_.size));
}

CallDump::~CallDump() {
  if (file_.is_open()) unlink(partial(path_, setup_.rank).c_str());
}

std::vector<int> CallDump::missing() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < setup_.size; ++rank) {
    if (!heard_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

bool CallDump::take(int rank) {
  if (rank < 0 || rank >= setup_.size || heard_[static_cast<std::size_t>(rank)]) return false;
  heard_[static_cast<std::size_t>(rank)] = true;
  return true;
}

void CallDump::add(int rank, const std::vector<CallRecord>& calls, TimePoint now) {
  if (!take(rank)) return;
  for (const CallRecord& call : calls) write(line_of(rank, call, now));
}

void CallDump::add_missing(int rank, const std::string& why) {
  if (!take(rank)) return;
  without_.push_back(rank);
  write(fmt::format(R"({{"rank": {}, "missing": {}}})", rank, json_string(why)));
}

void CallDump::finish() {
  for (const int rank : missing()) {
    add_missing(rank, fmt::format("it did not answer within {:.1f} s", to_seconds(kPatience)));
  }
  std::sort(without_.begin(), without_.end());
  write(fmt::format(R"({{"end": true, "ranks": {}, "missing": [{}]}})", setup_.size,
                    fmt::join(without_, ", ")));
  file_.flush();
  if (!file_ || std::rename(partial(path_, setup_.rank).c_str(), path_.c_str()) != 0)
    throw_errno("write the calls of all ranks to " + path_);
  file_.close();
}

// An error stays with the file until finish().
void CallDump::write(const std::string& line) { file_ << line << '\n'; }

}  // namespace motley
