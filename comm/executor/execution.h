// comm/executor/execution.h: one call under way: runs a schedule over a transport.
//
// The buffer is cut into pieces whose messages fit the transport; each piece runs the schedule on
// its own, a few at a time (lanes), so that one piece's reduction overlaps another's transfer.
// Within a piece steps start in order, at most kWindow unfinished. A send starts once earlier
// receives of its chunks have taken effect; a receive takes effect once earlier steps on its chunks
// are finished, and what arrives sooner is kept aside. Advances inside the transport's callbacks,
// never blocks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/clock.h"
#include "comm/group.h"
#include "comm/transport/transport.h"
#include "comm/view.h"

namespace motley {

// What a call is to do.
struct Call {
  CallKind kind = CallKind::kBarrier;
  const Group* group = nullptr;  // its members; outlives the call
  std::uint32_t number = 0;      // of the call in the group
  ConstView in;                  // copied to `out` piece by piece, unless it is `out` already
  View out;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;       // index in the group
  int algorithm = 0;  // index in the list of families of `kind`
  std::size_t segment_bytes = 128 << 10;
  TimePoint started{};
  TimePoint deadline{};
};

class Execution final : public Sink {
 public:
  static constexpr int kWindow = 8;  // unfinished steps of a piece
  static constexpr int kLanes = 4;   // pieces under way

  Execution(Transport& transport, const Call& call);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  // Posts the first steps.
  void start();
  bool finished() const noexcept { return finished_pieces_ == pieces_ || error_.has_value(); }
  const std::optional<Error>& error() const noexcept { return error_; }
  const Call& call() const noexcept { return call_; }
  CallId id() const noexcept { return {call_.group->tag(), call_.number}; }

  // The call will not complete. The engine tells the transport, outside its callbacks.
  void fail(const Error& error);
  void fail_timeout(TimePoint now);
  void fail_lost(int rank, const std::string& why);
  void fail_aborted(const std::string& why);

  void sent(std::uint32_t cookie) override;
  void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) override;
  void failed(std::uint32_t cookie, const Error& error) override;

 private:
  struct Pending {
    Step step;
    bool posted = false;
    bool arrived = false;  // the message waits in `kept` for earlier steps
    bool done = false;
    std::vector<std::byte> kept;

    bool outstanding() const noexcept { return posted && !arrived && !done; }
  };
  struct Lane {
    std::uint32_t piece = 0;
    bool active = false;
    int head = 0;  // oldest unfinished step
    int next = 0;  // steps [head, next) are in the window
    std::array<Pending, kWindow> window;

    Pending& at(int step) { return window[static_cast<std::size_t>(step) % kWindow]; }
    const Pending& at(int step) const { return window[static_cast<std::size_t>(step) % kWindow]; }
  };

  void start_piece(Lane& lane);
  void finish_piece(Lane& lane);
  void advance(std::size_t index);
  bool take_kept(Lane& lane);
  bool post_next(std::size_t index);
  void post(std::size_t index, int step);
  void apply(const Lane& lane, const Step& step, ConstBytes data);
  bool blocked(const Lane& lane, int step) const noexcept;
  bool agrees(const Tag& tag, int peer, std::size_t size, std::size_t expected);
  View whole(const Lane& lane) const noexcept;
  View chunks_of(const Lane& lane, const Step& step) const noexcept;
  std::string who() const;
  std::string waiting_text() const;

  Transport& transport_;
  Call call_;
  Schedule schedule_;
  Fingerprint fingerprint_;
  std::size_t piece_size_ = 0;  // elements of a full piece
  std::uint32_t pieces_ = 1;
  std::uint32_t started_pieces_ = 0;
  std::uint32_t finished_pieces_ = 0;
  std::vector<Lane> lanes_;
  std::optional<Error> error_;
};

}  // namespace motley
