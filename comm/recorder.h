// comm/recorder.h: the last 1,024 calls of this rank: what they were, and how far they came.
//
//   for (const CallRecord& call : comm.recorder().last(10)) puts(to_text(call).c_str());
//
// Errors and status reports quote it, and every sign of life carries its newest entries to the
// controller, so that any rank can be told where all others are.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_kind.h"
#include "comm/clock.h"
#include "comm/dtype.h"
#include "comm/group.h"

namespace motley {

struct CallRecord {
  enum State : std::uint8_t { kRunning, kDone, kFailed };

  GroupTag group;
  std::uint32_t number = 0;  // of the call in its group
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  State state = kRunning;
  std::uint64_t count = 0;     // elements
  const char* algorithm = "";  // name of the schedule; lives as long as the program
  std::uint64_t bytes = 0;     // received so far
  TimePoint started{};         // each of these is TimePoint{} until it has happened
  TimePoint first_message{};   // received
  TimePoint last_arrival{};    // of a message
  TimePoint ended{};           // complete or failed
};

// "all_reduce #1580 (ring, 1048576 float32, sum)"; "barrier #3 of group 7.0".
std::string to_text(const CallRecord& call);

// A ring without locks and without allocation after construction. Calls that are over as they begin
// share an entry while each is like the one before, and so cost but one store.
class Recorder {
 public:
  static constexpr std::size_t kCalls = 1024;

  Recorder();

  // --- By who makes calls and progress: one thread at a time ------------------------------------

  // Notes a call that begins. Its ticket is for the next two, which do nothing once kCalls younger
  // entries have been begun. Costs less than 10 ns.
  std::uint64_t start(const CallRecord& call) noexcept;
  // `bytes` in all have been received by `now`.
  void arrive(std::uint64_t ticket, std::uint64_t bytes, TimePoint now) noexcept;
  void end(std::uint64_t ticket, CallRecord::State state, TimePoint now) noexcept;
  // Notes a call that is over already; of kDone.
  void over(const CallRecord& call) noexcept {
    if (!is_next(call)) start(call);
  }

  // Where a look at the clock would cost too much: the latest time that anybody gave. Signs of life
  // give it, too, so it is seldom older than Options::heartbeat.
  void tick(TimePoint now) noexcept;  // any thread
  TimePoint ticked() const noexcept;

  // --- Any thread -------------------------------------------------------------------------------

  // The latest `n` calls, in the order in which they began. One that is being overwritten is left
  // out.
  std::vector<CallRecord> last(std::size_t n = kCalls) const;
  // The call of that ticket, while its entry is among the latest kCalls; the last of several.
  std::optional<CallRecord> read(std::uint64_t ticket) const;
  std::optional<CallRecord> last_started() const;
  // The call that was completed last.
  std::optional<CallRecord> last_done() const;
  // Of the calls under way, the one that began first.
  std::optional<CallRecord> oldest_running() const;

 private:
  // Odd while it is written; a reader that sees the same even version before and after has read a
  // whole entry. Words are stored with release, so that none is seen before the odd version.
  template <std::size_t kWords>
  struct alignas(64) Entry {
    std::atomic<std::uint64_t> version{0};
    std::array<std::atomic<std::uint64_t>, kWords> words{};

    // False if a writer was at it.
    bool read(std::uint64_t& version_read, std::array<std::uint64_t, kWords>& out) const noexcept;
  };
  using Call = Entry<7>;    // its version is 4 * ticket + what start() and end() have done
  using Detail = Entry<4>;  // what arrive() tells of the ticket that it names

  // Where a record's parts lie among the words of the two entries.
  enum CallWord : std::size_t { kGroupId, kGroupUse, kWhat, kCount, kAlgorithm, kStarted, kEnded };
  enum DetailWord : std::size_t { kTicket, kBytes, kFirstMessage, kLastArrival };
  // What the low bits of a call's version say.
  enum Phase : std::uint64_t { kStarting = 1, kUnderWay = 2, kEnding = 3, kOver = 0 };

  // In kWhat: the number, how many calls before it share the entry, and state, kind, dtype and op.
  static constexpr int kNumberShift = 32, kBeforeShift = 20, kStateShift = 15, kKindShift = 10,
                       kDTypeShift = 5;
  static constexpr std::uint64_t kSmallMask = 0x1f, kBeforeMask = 0xfff;
  static constexpr std::uint64_t kOneMore = std::uint64_t{1} << kNumberShift | std::uint64_t{1}
                                                                                   << kBeforeShift;

  static std::uint64_t word(TimePoint time) noexcept {
    return static_cast<std::uint64_t>(time.time_since_epoch().count());
  }
  static std::uint64_t word(const GroupTag& group) noexcept {
    return std::uint64_t{group.epoch} << 32 | group.attempt;
  }
  static std::uint64_t what(const CallRecord& call) noexcept {
    return std::uint64_t{call.number} << kNumberShift | std::uint64_t{call.state} << kStateShift |
           static_cast<std::uint64_t>(call.kind) << kKindShift |
           static_cast<std::uint64_t>(call.dtype) << kDTypeShift |
           static_cast<std::uint64_t>(call.op);
  }
  bool is_next(const CallRecord& call) noexcept;
  std::optional<CallRecord> read(std::uint64_t ticket, std::uint32_t& before) const;

  std::unique_ptr<std::array<Call, kCalls>> calls_;
  std::unique_ptr<std::array<Detail, kCalls>> details_;
  std::atomic<std::uint64_t> started_{0};  // entries so far; tickets are 1, 2, …
  std::atomic<std::uint64_t> done_{0};     // ticket of the last completed
  std::atomic<std::int64_t> ticked_{0};    // ns
};

// Notes the call in the newest entry if that is of calls like it, the one before it the last of
// them, and nothing else was begun or completed since. Inline, so that no record is made up.
inline bool Recorder::is_next(const CallRecord& call) noexcept {
  const std::uint64_t ticket = started_.load(std::memory_order_relaxed);
  Call& entry = (*calls_)[ticket % kCalls];
  const auto has = [&entry](CallWord at, std::uint64_t value) {
    return entry.words[at].load(std::memory_order_relaxed) == value;
  };
  const std::uint64_t last = entry.words[kWhat].load(std::memory_order_relaxed);
  const std::uint64_t before = last >> kBeforeShift & kBeforeMask;
  const bool like = entry.version.load(std::memory_order_relaxed) == 4 * ticket + kUnderWay &&
                    done_.load(std::memory_order_relaxed) == ticket && before != kBeforeMask &&
                    last + kOneMore == (what(call) | (before + 1) << kBeforeShift) &&
                    has(kGroupId, call.group.id) && has(kGroupUse, word(call.group)) &&
                    has(kCount, call.count) &&
                    has(kAlgorithm, std::bit_cast<std::uintptr_t>(call.algorithm)) &&
                    has(kStarted, word(call.started)) && has(kEnded, word(call.ended));
  if (like) entry.words[kWhat].store(last + kOneMore, std::memory_order_release);
  return like;
}

}  // namespace motley
