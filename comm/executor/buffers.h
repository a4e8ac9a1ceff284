// comm/executor/buffers.h: the memory of one call: reads and writes its chunks.
//
// Those of a call that is direct lie in device memory. Whatever is done with them is put into one
// stream, so that it takes effect in the order in which it is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/algorithm/schedule.h"
#include "comm/executor/arena.h"
#include "comm/executor/call.h"
#include "comm/executor/layout.h"
#include "comm/executor/staging.h"
#include "comm/transport/device_messages.h"
#include "comm/view.h"

namespace motley {

// A piece under way, and the memory that it works in.
struct PieceMemory {
  std::uint32_t piece = 0;
  Arena::Block memory;
  Slots::Lease slot;  // instead, of a call on device memory

  std::byte* data() const noexcept { return slot ? slot->data() : memory.data(); }
};

class Buffers {
 public:
  // Keeps references. `staging` is null, unless the call is on device memory.
  Buffers(Arena& arena, Staging* staging, const Call& call, const Shape& shape,
          const Schedule& schedule, std::size_t message_bytes, Heads heads);

  const Layout& layout() const noexcept { return layout_; }
  // That a piece works in.
  std::size_t piece_bytes() const noexcept;

  // Brings what this rank has to where it is worked on; takes memory, if `at` has none yet. True if
  // copies from the device are under way: when at.slot->copied is done, begun() is due.
  bool begin(PieceMemory& at);
  void begun(const PieceMemory& at);
  // Brings results to where the user wants them. True if copies to the device are under way, until
  // at.slot->copied is done.
  bool finish(const PieceMemory& at);
  // How long the block from a member is, as that member says; of the piece of heads.
  std::size_t said_count(const PieceMemory& at, int from) const;

  std::size_t message_bytes(std::uint32_t piece, const Step& step) const;
  // What a send sends: where it lies, or gathered in `packed`.
  ConstBytes read(const PieceMemory& at, const Step& step, Arena::Block& packed);
  // A receive takes effect.
  void write(const PieceMemory& at, const Step& step, ConstBytes data);
  // The same in device memory, in stream order; the event of the message's slot tells when, also of
  // what is under way where they throw.
  void gather(const PieceMemory& at, const Step& step, DeviceMessage& message);
  void write(const PieceMemory& at, const Step& step, DeviceMessage& message);
  // The end of all that was put into its streams so far.
  void mark_end(Event& event) const;
  // A copy or reduction within the rank.
  void move(const PieceMemory& at, const Step& step);

 private:
  View view(const PieceMemory& at, const Region& region) const noexcept;
  View copied(const PieceMemory& at, const Region& lane) const noexcept;
  Memory lane_memory() const noexcept { return call_.direct ? Memory::kDevice : Memory::kHost; }
  // Copies from the user, and all else of a call that is direct; copies to him.
  StreamRef stream_in() const noexcept;
  StreamRef stream_out() const noexcept { return staging_->to_device(); }
  void convert_lane(View out, ConstView in, double factor = 1) const;
  void reduce_lane(View out, ConstView in) const;
  void divide_lane(View data) const;
  double factor() const noexcept;
  template <class Work>
  void use(DeviceMessage& message, Work&& work) const;
  template <class Action>
  void each_input(std::uint32_t piece, Action&& action) const;
  template <class Action>
  void each_output(std::uint32_t piece, Action&& action) const;
  void pack_heads(const PieceMemory& at) const;
  void unpack_heads(const PieceMemory& at) const;
  std::byte* head(const PieceMemory& at, int chunk) const;

  Arena& arena_;
  Staging* staging_;
  const Call& call_;
  const Shape& shape_;
  const Schedule& schedule_;
  DType work_;  // what chunks are worked on in
  Layout layout_;
};

}  // namespace motley
