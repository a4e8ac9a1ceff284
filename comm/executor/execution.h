// comm/executor/execution.h: one call under way: runs a schedule over a transport.
//
// The call is cut into pieces (layout.h) whose messages fit the transport; each piece runs the
// schedule on its own, a few at a time (lanes), so that one piece's reduction overlaps another's
// transfer. Within a piece steps start in order, at most kWindow unfinished. A send starts once
// earlier steps that write its chunks have taken effect; any other step takes effect once earlier
// steps on its chunks are finished, and what arrives sooner is kept aside. Advances inside the
// transport's callbacks, never blocks.
//
// Device memory is copied to and from the lane's slot (staging.h) on side streams, beside what
// other lanes do: a piece runs the schedule once its copies to the host are done, and the lane is
// free once those to the device are. No copy begins before the work that the user put into the
// stream is done, so copies under way take no longer than copies do.
//
// Of a call that is direct (call.h) chunks and messages are on the device. A step takes effect by
// being put into the one stream in which all its work is, so nothing waits for it but a message,
// which the transport sends once it is gathered, and the lane, which is free when its work is done.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/clock.h"
#include "comm/executor/arena.h"
#include "comm/executor/buffers.h"
#include "comm/executor/call.h"
#include "comm/executor/running_call.h"
#include "comm/executor/staging.h"
#include "comm/transport/device_messages.h"
#include "comm/transport/transport.h"

namespace motley {

class Execution final : public RunningCall {
 public:
  static constexpr int kWindow = 8;  // unfinished steps of a piece
  static constexpr int kLanes = 4;   // pieces under way, of a call on host memory

  // Memory comes from `arena`, which release_memory() must be called before the end of; of a call
  // on device memory, from `staging`, too, else null.
  Execution(Transport& transport, Arena& arena, Staging* staging, const Call& call);

  // Posts the first steps.
  void start();
  // Moves on what copies have held up.
  void look_at_copies(TimePoint now);
  // When to do so again: `now` if without letting others run; max() if no copy is awaited.
  TimePoint next_look(TimePoint now) const noexcept;
  bool finished() const noexcept override {
    return finished_pieces_ == pieces_ || error_.has_value();
  }
  std::vector<int> awaited() const override;

  // The transport knows nothing of the call any more: gives back the memory that it worked in,
  // after the copies under way.
  void release_memory() noexcept;

  void sent(std::uint32_t cookie) override;
  void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) override;
  void received_on_device(std::uint32_t cookie, const Tag& tag, DeviceMessage message) override;

 private:
  struct Pending {
    Step step;
    bool posted = false;
    bool arrived = false;  // the message waits in `kept` for earlier steps; none is needed
    bool done = false;
    Arena::Block kept;  // a message that waits, or one that was gathered to be sent
    std::size_t kept_bytes = 0;
    DeviceMessage kept_on_device;  // instead, of a call that is direct

    bool outstanding() const noexcept { return posted && !arrived && !done; }
  };
  enum class State : std::uint8_t { kIdle, kCopiesIn, kRuns, kCopiesOut };
  struct Lane {
    PieceMemory at;
    State state = State::kIdle;
    int head = 0;  // oldest unfinished step
    int next = 0;  // steps [head, next) are in the window
    std::array<Pending, kWindow> window;

    Pending& at_step(int i) { return window[static_cast<std::size_t>(i) % kWindow]; }
    const Pending& at_step(int i) const { return window[static_cast<std::size_t>(i) % kWindow]; }
    bool runs() const noexcept { return state == State::kRuns; }
    bool copies() const noexcept { return state == State::kCopiesIn || state == State::kCopiesOut; }
  };

  void take_slots();
  void start_pieces();
  void start_piece(Lane& lane);
  void finish_piece(Lane& lane);
  void next_piece(Lane& lane);
  bool look_at_copy(std::size_t index);
  void advance(std::size_t index);
  void advance_lane(std::size_t index);
  bool take_kept(Lane& lane);
  bool post_next(std::size_t index);
  void post(std::size_t index, int step);
  template <class Data>
  void apply(const Lane& lane, const Step& step, Data&& data);
  Pending* arriving(std::uint32_t cookie, const Tag& tag, std::size_t size, Memory memory);
  bool blocked(const Lane& lane, int step) const noexcept;
  const Schedule& schedule_of(const Lane& lane) const noexcept {
    return lane.at.piece == 0 || !rest_ ? schedule_ : *rest_;
  }
  bool counts_agree(const Lane& lane);
  Fingerprint fingerprint_of(const Lane& lane, const Step& step) const;
  bool agrees(const Lane& lane, const Step& step, const Tag& tag, std::size_t size);
  std::string who() const override;
  std::string waiting_text() const override;

  Arena& arena_;
  Staging* staging_;
  Shape shape_;
  Schedule schedule_;
  std::optional<Schedule> rest_;  // of pieces after the first, where that is another
  Buffers buffers_;
  std::uint32_t pieces_ = 1;
  std::uint32_t started_pieces_ = 0;
  std::uint32_t finished_pieces_ = 0;
  std::vector<Lane> lanes_;
  bool waits_for_stream_ = false;  // whose end the first lane's slot marks
  // When a copy last moved anything on; nothing before the first look at copies just begun.
  std::optional<TimePoint> copied_;
};

}  // namespace motley
