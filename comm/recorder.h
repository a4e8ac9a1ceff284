// comm/recorder.h: the last 1,024 calls of this rank: what they were, and how far they came.
//
//   for (const CallRecord& call : comm.recorder().last(10)) puts(to_text(call).c_str());
//
// Errors and status reports quote it, and every sign of life carries its newest entries to the
// controller, so that any rank can be told where all others are.
#pragma once

#include <array>
#include <atomic>
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

// A ring without locks and without allocation after construction.
class Recorder {
 public:
  static constexpr std::size_t kCalls = 1024;

  Recorder();

  // --- By who makes calls and progress: one thread at a time ------------------------------------

  // Notes a call that begins, or one that is over already. Its ticket is for the other two, which
  // do nothing once kCalls younger calls have begun. Costs less than 10 ns.
  std::uint64_t start(const CallRecord& call) noexcept;
  // `bytes` in all have been received by `now`.
  void arrive(std::uint64_t ticket, std::uint64_t bytes, TimePoint now) noexcept;
  void end(std::uint64_t ticket, CallRecord::State state, TimePoint now) noexcept;

  // Where a look at the clock would cost too much: the latest time that anybody gave. Signs of life
  // give it, too, so it is seldom older than Options::heartbeat.
  void tick(TimePoint now) noexcept;  // any thread
  TimePoint ticked() const noexcept;

  // --- Any thread -------------------------------------------------------------------------------

  // The latest `n` calls, in the order in which they began. One that is being overwritten is left
  // out.
  std::vector<CallRecord> last(std::size_t n = kCalls) const;
  // The call of that ticket, while it is among the latest kCalls.
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

  std::unique_ptr<std::array<Call, kCalls>> calls_;
  std::unique_ptr<std::array<Detail, kCalls>> details_;
  std::atomic<std::uint64_t> started_{0};  // calls so far; tickets are 1, 2, …
  std::atomic<std::uint64_t> done_{0};     // ticket of the last completed
  std::atomic<std::int64_t> ticked_{0};    // ns
};

}  // namespace motley
