#include "comm/control/progress.h"

#include <algorithm>
#include <cstring>

#include "comm/algorithm/families.h"
#include "comm/control/packing.h"

namespace motley {
namespace {

template <class Enumeration>
bool exists(Enumeration value) noexcept {
  return std::strcmp(name(value), "unknown") != 0;
}

// An event of `now` or later has age 0; one that has not happened has none.
constexpr std::int64_t kNever = -1;
constexpr std::int64_t kOldest = std::int64_t{1} << 60;  // ns: 36 years; no sum of some overflows

std::int64_t age(TimePoint event, TimePoint now) noexcept {
  return event == TimePoint{} ? kNever : std::max<std::int64_t>(0, (now - event).count());
}

void put_call(std::string& out, const std::optional<CallRecord>& call, TimePoint now) {
  put(out, static_cast<std::uint8_t>(call.has_value()));
  if (!call) return;
  put(out, call->group.id);
  put(out, call->group.epoch);
  put(out, call->group.attempt);
  put(out, call->number);
  put(out, static_cast<std::uint8_t>(call->kind));
  put(out, static_cast<std::uint8_t>(call->dtype));
  put(out, static_cast<std::uint8_t>(call->op));
  put(out, static_cast<std::uint8_t>(call->state));
  put(out, call->count);
  put(out, age(call->started, now));
  put(out, age(call->ended, now));
}

TimePoint take_time(Unpacker& in, TimePoint now) {
  const auto age = in.take<std::int64_t>();
  in.refuse_unless(age >= kNever && age <= kOldest);
  return !in.ok() || age == kNever ? TimePoint{} : now - Duration(age);
}

std::optional<CallRecord> take_call(Unpacker& in, TimePoint now) {
  const auto present = in.take<std::uint8_t>();
  in.refuse_unless(present <= 1);
  if (present == 0 || !in.ok()) return std::nullopt;
  CallRecord call;
  call.group.id = in.take<std::uint64_t>();
  call.group.epoch = in.take<std::uint32_t>();
  call.group.attempt = in.take<std::uint32_t>();
  call.number = in.take<std::uint32_t>();
  call.kind = static_cast<CallKind>(in.take<std::uint8_t>());
  call.dtype = static_cast<DType>(in.take<std::uint8_t>());
  call.op = static_cast<ReduceOp>(in.take<std::uint8_t>());
  call.state = static_cast<CallRecord::State>(in.take<std::uint8_t>());
  call.count = in.take<std::uint64_t>();
  call.started = take_time(in, now);
  call.ended = take_time(in, now);
  in.refuse_unless(exists(call.kind) && exists(call.dtype) && exists(call.op) &&
                   call.state <= CallRecord::kFailed);
  return call;
}

// Names of algorithms travel as text, as versions differ in what they know, and come back as names
// that live as long as the program.
constexpr const char* kTeam = "team";
constexpr const char* kUnknown = "unknown";

const char* known_algorithm(CallKind kind, std::string_view text) {
  if (text.empty()) return "";
  if (text == kTeam) return kTeam;
  for (const Algorithm& algorithm : algorithms_of(kind)) {
    if (text == algorithm.name) return algorithm.name;
  }
  return kUnknown;
}

bool has_begun(const std::optional<CallRecord>& call, const GroupTag& group,
               std::uint32_t number) noexcept {
  return call && call->group == group && call->number >= number;
}

}  // namespace

Progress Progress::of(const Recorder& recorder) {
  return {.running = recorder.oldest_running(),
          .started = recorder.last_started(),
          .done = recorder.last_done()};
}

std::string encode(const Progress& progress, TimePoint now) {
  std::string out;
  put_call(out, progress.running, now);
  put_call(out, progress.started, now);
  put_call(out, progress.done, now);
  return out;
}

std::optional<Progress> decode_progress(std::string_view bytes, TimePoint now) {
  Unpacker in(bytes);
  Progress progress;
  progress.running = take_call(in, now);
  progress.started = take_call(in, now);
  progress.done = take_call(in, now);
  if (!in.at_end()) return std::nullopt;
  return progress;
}

std::string encode_calls(const std::vector<CallRecord>& calls, TimePoint now) {
  std::string out;
  for (const CallRecord& call : calls) {
    put_call(out, std::optional(call), now);
    put(out, call.bytes);
    put(out, age(call.first_message, now));
    put(out, age(call.last_arrival, now));
    const std::string_view algorithm = call.algorithm;
    put(out, static_cast<std::uint8_t>(algorithm.size()));
    out += algorithm;
  }
  return out;
}

std::optional<std::vector<CallRecord>> decode_calls(std::string_view bytes, TimePoint now) {
  if (bytes.size() > kMaxCallsBytes) return std::nullopt;
  Unpacker in(bytes);
  std::vector<CallRecord> calls;
  while (in.ok() && !in.at_end()) {
    auto call = take_call(in, now);
    in.refuse_unless(call.has_value() && calls.size() < Recorder::kCalls);
    if (!in.ok()) break;
    call->bytes = in.take<std::uint64_t>();
    call->first_message = take_time(in, now);
    call->last_arrival = take_time(in, now);
    call->algorithm = known_algorithm(call->kind, in.take_bytes(in.take<std::uint8_t>()));
    calls.push_back(*call);
  }
  if (!in.ok()) return std::nullopt;
  return calls;
}

bool has_begun(const Progress& progress, const GroupTag& group, std::uint32_t number) noexcept {
  return has_begun(progress.started, group, number) || has_begun(progress.running, group, number) ||
         has_begun(progress.done, group, number);
}

const RankReport* Report::find(int rank) const noexcept {
  const auto found =
      std::lower_bound(ranks.begin(), ranks.end(), rank,
                       [](const RankReport& r, int wanted) { return r.rank < wanted; });
  return found != ranks.end() && found->rank == rank ? &*found : nullptr;
}

std::string encode_report(const std::vector<ReportEntry>& entries, std::uint32_t left_out) {
  std::string out;
  put(out, left_out);
  for (const ReportEntry& entry : entries) {
    put(out, static_cast<std::int32_t>(entry.rank));
    put(out, static_cast<std::uint8_t>(entry.state));
    put(out, std::int64_t{entry.silent.count()});
    put(out, static_cast<std::uint16_t>(entry.progress.size()));
    out += entry.progress;
  }
  return out;
}

std::optional<Report> decode_report(std::string_view bytes, TimePoint now) {
  Unpacker in(bytes);
  Report report;
  report.left_out = in.take<std::uint32_t>();
  while (in.ok() && !in.at_end()) {
    RankReport entry;
    entry.rank = in.take<std::int32_t>();
    entry.state = static_cast<RankReport::State>(in.take<std::uint8_t>());
    entry.heard = take_time(in, now);
    const std::string_view progress = in.take_bytes(in.take<std::uint16_t>());
    const int before = report.ranks.empty() ? -1 : report.ranks.back().rank;
    in.refuse_unless(entry.rank > before && entry.state <= RankReport::kDead);
    if (!progress.empty()) {
      const auto decoded = decode_progress(progress, entry.heard);
      in.refuse_unless(decoded.has_value());
      if (decoded) entry.progress = *decoded;
    }
    if (in.ok()) report.ranks.push_back(std::move(entry));
  }
  if (!in.ok()) return std::nullopt;
  return report;
}

}  // namespace motley
