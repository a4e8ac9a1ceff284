#include "comm/recorder.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kAcquire = std::memory_order_acquire;

TimePoint time(std::uint64_t word) noexcept {
  return TimePoint(Duration(static_cast<Duration::rep>(word)));
}

}  // namespace

std::string to_text(const CallRecord& call) {
  const std::string text =
      fmt::format("{} #{}{}", name(call.kind), call.number, scope_text(call.group));
  if (call.kind == CallKind::kBarrier) return text;
  const std::string op = reduces(call.kind) ? fmt::format(", {}", name(call.op)) : "";
  return text + fmt::format(" ({}{}{} {}{})", call.algorithm, *call.algorithm == '\0' ? "" : ", ",
                            call.count, name(call.dtype), op);
}

Recorder::Recorder()
    : calls_(std::make_unique<std::array<Call, kCalls>>()),
      details_(std::make_unique<std::array<Detail, kCalls>>()) {}

std::uint64_t Recorder::start(const CallRecord& call) noexcept {
  constexpr auto fits = [](auto last) { return static_cast<std::uint64_t>(last) <= kSmallMask; };
  static_assert(fits(CallKind::kBarrier) && fits(DType::kInt64) && fits(ReduceOp::kWeightedSum) &&
                    fits(CallRecord::kFailed),
                "each must lie in its bits of kWhat");
  static_assert(kSmallMask < std::uint64_t{1} << kDTypeShift && kKindShift == 2 * kDTypeShift &&
                    kStateShift == 3 * kDTypeShift && kBeforeShift == 4 * kDTypeShift,
                "none may reach into the next");
  const std::uint64_t ticket = started_.load(kRelaxed) + 1;
  Call& entry = (*calls_)[ticket % kCalls];
  entry.version.store(4 * ticket + kStarting, kRelaxed);
  const auto put = [&](CallWord at, std::uint64_t value) {
    entry.words[at].store(value, kRelease);
  };
  put(kGroupId, call.group.id);
  put(kGroupUse, word(call.group));
  put(kWhat, what(call));
  put(kCount, call.count);
  put(kAlgorithm, std::bit_cast<std::uintptr_t>(call.algorithm));
  put(kStarted, word(call.started));
  put(kEnded, word(call.ended));
  entry.version.store(4 * ticket + kUnderWay, kRelease);
  started_.store(ticket, kRelease);
  if (call.state == CallRecord::kDone) done_.store(ticket, kRelease);
  return ticket;
}

void Recorder::arrive(std::uint64_t ticket, std::uint64_t bytes, TimePoint now) noexcept {
  if (ticket + kCalls <= started_.load(kRelaxed)) return;
  Detail& entry = (*details_)[ticket % kCalls];
  const std::uint64_t version = entry.version.load(kRelaxed);
  entry.version.store(version + 1, kRelaxed);
  if (entry.words[kTicket].load(kRelaxed) != ticket) {
    entry.words[kTicket].store(ticket, kRelease);
    entry.words[kFirstMessage].store(word(now), kRelease);
  }
  entry.words[kBytes].store(bytes, kRelease);
  entry.words[kLastArrival].store(word(now), kRelease);
  entry.version.store(version + 2, kRelease);
}

void Recorder::end(std::uint64_t ticket, CallRecord::State state, TimePoint now) noexcept {
  Call& entry = (*calls_)[ticket % kCalls];
  if (entry.version.load(kRelaxed) != 4 * ticket + kUnderWay) return;
  entry.version.store(4 * ticket + kEnding, kRelaxed);
  constexpr std::uint64_t kStateBits = kSmallMask << kStateShift;
  const std::uint64_t what = entry.words[kWhat].load(kRelaxed) & ~kStateBits;
  entry.words[kWhat].store(what | std::uint64_t{state} << kStateShift, kRelease);
  entry.words[kEnded].store(word(now), kRelease);
  entry.version.store(4 * ticket + kOver, kRelease);
  if (state == CallRecord::kDone) done_.store(ticket, kRelease);
}

template <std::size_t kWords>
bool Recorder::Entry<kWords>::read(std::uint64_t& version_read,
                                   std::array<std::uint64_t, kWords>& out) const noexcept {
  version_read = version.load(kAcquire);
  for (std::size_t i = 0; i < kWords; ++i) out[i] = words[i].load(kAcquire);
  return version_read % 2 == 0 && version.load(kRelaxed) == version_read;
}

std::optional<CallRecord> Recorder::read(std::uint64_t ticket) const {
  std::uint32_t before = 0;
  return read(ticket, before);
}

// `before`: how many calls before it share its entry.
std::optional<CallRecord> Recorder::read(std::uint64_t ticket, std::uint32_t& before) const {
  std::uint64_t version = 0;
  std::array<std::uint64_t, 7> words;
  if (ticket == 0 || !(*calls_)[ticket % kCalls].read(version, words)) return std::nullopt;
  if (version / 4 != ticket) return std::nullopt;
  const std::uint64_t what = words[kWhat];
  const auto small = [what](int shift) { return what >> shift & kSmallMask; };
  before = static_cast<std::uint32_t>(what >> kBeforeShift & kBeforeMask);
  CallRecord call{
      .group = {.id = words[kGroupId],
                .epoch = static_cast<std::uint32_t>(words[kGroupUse] >> 32),
                .attempt = static_cast<std::uint32_t>(words[kGroupUse])},
      .number = static_cast<std::uint32_t>(what >> kNumberShift),
      .kind = static_cast<CallKind>(small(kKindShift)),
      .dtype = static_cast<DType>(small(kDTypeShift)),
      .op = static_cast<ReduceOp>(small(0)),
      .state = static_cast<CallRecord::State>(small(kStateShift)),
      .count = words[kCount],
      .algorithm = std::bit_cast<const char*>(static_cast<std::uintptr_t>(words[kAlgorithm])),
      .started = time(words[kStarted]),
      .ended = time(words[kEnded])};
  std::array<std::uint64_t, 4> detail;
  if ((*details_)[ticket % kCalls].read(version, detail) && detail[kTicket] == ticket) {
    call.bytes = detail[kBytes];
    call.first_message = time(detail[kFirstMessage]);
    call.last_arrival = time(detail[kLastArrival]);
  }
  return call;
}

void Recorder::tick(TimePoint now) noexcept {
  ticked_.store(now.time_since_epoch().count(), kRelaxed);
}
TimePoint Recorder::ticked() const noexcept { return TimePoint(Duration(ticked_.load(kRelaxed))); }

std::vector<CallRecord> Recorder::last(std::size_t n) const {
  const std::uint64_t newest = started_.load(kAcquire);
  const std::uint64_t oldest = newest < kCalls ? 1 : newest - kCalls + 1;
  n = std::min(n, kCalls);
  std::vector<CallRecord> calls;
  for (std::uint64_t ticket = newest; ticket >= oldest && calls.size() < n; --ticket) {
    std::uint32_t before = 0;
    const auto newest_of_entry = read(ticket, before);
    if (!newest_of_entry) continue;
    for (std::uint32_t i = 0; i <= before && calls.size() < n; ++i) {
      calls.push_back(*newest_of_entry);
      calls.back().number -= i;
    }
  }
  std::reverse(calls.begin(), calls.end());
  return calls;
}

std::optional<CallRecord> Recorder::last_started() const { return read(started_.load(kAcquire)); }
std::optional<CallRecord> Recorder::last_done() const { return read(done_.load(kAcquire)); }

std::optional<CallRecord> Recorder::oldest_running() const {
  const std::uint64_t newest = started_.load(kAcquire);
  for (std::uint64_t ticket = newest < kCalls ? 1 : newest - kCalls + 1; ticket <= newest;
       ++ticket) {
    const auto call = read(ticket);
    if (call && call->state == CallRecord::kRunning) return call;
  }
  return std::nullopt;
}

}  // namespace motley
