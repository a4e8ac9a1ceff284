#include "comm/executor/buffers.h"

#include <cstring>
#include <optional>

#include "comm/convert.h"
#include "comm/error.h"
#include "comm/kernel/reduce.h"

namespace motley {

Buffers::Buffers(Arena& arena, Staging* staging, const Call& call, const Shape& shape,
                 const Schedule& schedule, std::size_t message_bytes, Heads heads)
    : arena_(arena),
      staging_(staging),
      call_(call),
      shape_(shape),
      schedule_(schedule),
      work_(work_dtype(call)),
      layout_(call, shape, schedule, work_, message_bytes, heads) {}

// In a slot, what is copied from and to the device lies behind what is worked on, if it has another
// type.
std::size_t Buffers::piece_bytes() const noexcept {
  const std::size_t worked_on = layout_.lane_elements() * size_bytes(work_);
  if (staging_ == nullptr || work_ == call_.out.dtype) return worked_on;
  return worked_on + layout_.staged_elements() * size_bytes(call_.out.dtype);
}

// `in` is never written: no schedule that check() accepts does.
View Buffers::view(const PieceMemory& at, const Region& region) const noexcept {
  const bool in_lane = region.where == Region::kLane;
  const DType dtype = in_lane ? work_ : call_.out.dtype;
  const std::size_t offset = region.first * size_bytes(dtype);
  std::byte* const base = region.where == Region::kIn    ? const_cast<std::byte*>(call_.in.data)
                          : region.where == Region::kOut ? call_.out.data
                                                         : at.data();
  const Memory memory = in_lane                       ? lane_memory()
                        : region.where == Region::kIn ? call_.in.memory
                                                      : call_.out.memory;
  return {base == nullptr ? nullptr : base + offset, region.count, dtype, memory};
}

// Where the elements of a lane's region lie as the device has them.
View Buffers::copied(const PieceMemory& at, const Region& lane) const noexcept {
  const DType dtype = call_.out.dtype;
  if (work_ == dtype) return view(at, lane);
  std::byte* const base = at.data() + layout_.lane_elements() * size_bytes(work_);
  return {base + lane.first * size_bytes(dtype), lane.count, dtype, lane_memory()};
}

StreamRef Buffers::stream_in() const noexcept {
  return call_.direct ? stream_out() : staging_->to_host();
}

void Buffers::convert_lane(View out, ConstView in, double factor) const {
  if (call_.direct) return convert_on_device(out, in, stream_out(), factor);
  convert(out, in, factor);
}

void Buffers::reduce_lane(View out, ConstView in) const {
  if (call_.direct) return reduce_on_device(out, in, call_.op, stream_out());
  reduce(out, in.bytes(), call_.op);
}

void Buffers::divide_lane(View data) const {
  if (call_.direct) return divide_on_device(data, shape_.size, stream_out());
  divide(data, shape_.size);
}

double Buffers::factor() const noexcept {
  return reduces(call_.kind) && call_.op == ReduceOp::kWeightedSum ? call_.weight : 1;
}

// Calls action(where it is worked on, where the user has it) for this rank's own input.
template <class Action>
void Buffers::each_input(std::uint32_t piece, Action&& action) const {
  if (layout_.is_cut()) {
    if (call_.kind == CallKind::kBroadcast && shape_.rank != shape_.root) return;
    Region in = layout_.home(piece, {});
    in.where = Region::kIn;
    return action(layout_.cut(piece), in);
  }
  for (int chunk = 0; layout_.stages(Place::kIn) && chunk < schedule_.first_scratch(); ++chunk) {
    const Place place = place_of(call_.kind, shape_, chunk);
    if (place.where == Place::kIn) action(layout_.at(piece, chunk), layout_.home(piece, place));
  }
  const bool is_root = call_.kind != CallKind::kGather || shape_.rank == shape_.root;
  if (!gathers(call_.kind) || !is_root) return;
  const Place own{Place::kOut, shape_.rank};
  const Region home = layout_.home(piece, own);
  const Region first = layout_.home(0, own);
  action(layout_.at(piece, shape_.rank), Region{Region::kIn, home.first - first.first, home.count});
}

// Calls action(where the user wants it, where it was worked on) for results that are not there yet
// or not as they are to be.
template <class Action>
void Buffers::each_output(std::uint32_t piece, Action&& action) const {
  const bool is_root = shape_.rank == shape_.root;
  if (layout_.is_cut()) {
    if (call_.kind == CallKind::kBroadcast ? is_root || !layout_.stages(Place::kShare)
                                           : call_.kind == CallKind::kReduce && !is_root) {
      return;
    }
    return action(layout_.home(piece, {}), layout_.cut(piece));
  }
  if (!reduces(call_.kind) && !layout_.stages(Place::kOut)) return;
  for (int chunk = 0; chunk < schedule_.first_scratch(); ++chunk) {
    const Place place = place_of(call_.kind, shape_, chunk);
    if (place.where == Place::kOut) action(layout_.home(piece, place), layout_.at(piece, chunk));
  }
}

bool Buffers::begin(PieceMemory& at) {
  if (staging_ == nullptr && at.memory.capacity() < piece_bytes())
    at.memory = arena_.take(piece_bytes());
  if (layout_.is_heads(at.piece)) {
    pack_heads(at);
    return false;
  }
  std::optional<UseDevice> device;  // whoever makes progress puts copies into its streams
  if (staging_ != nullptr) device.emplace(staging_->device());
  bool copies = false;
  each_input(at.piece, [&](const Region& to, const Region& from) {
    const View user = view(at, from);
    if (user.count == 0) return;
    if (user.memory == Memory::kHost && !call_.direct) return convert(view(at, to), user, factor());
    motley::copy(copied(at, to), user, stream_in());
    copies = true;
  });
  if (call_.direct) {  // what follows comes after the copies by itself
    begun(at);
    return false;
  }
  if (copies) at.slot->copied.record(stream_in());
  return copies;
}

void Buffers::begun(const PieceMemory& at) {
  each_input(at.piece, [&](const Region& to, const Region& from) {
    if (call_.direct || view(at, from).memory == Memory::kDevice)
      convert_lane(view(at, to), copied(at, to), factor());
  });
}

bool Buffers::finish(const PieceMemory& at) {
  if (layout_.is_heads(at.piece)) {
    unpack_heads(at);
    return false;
  }
  std::optional<UseDevice> device;  // whoever makes progress puts copies into its streams
  if (staging_ != nullptr) device.emplace(staging_->device());
  bool copies = false;
  each_output(at.piece, [&](const Region& to, const Region& from) {
    const View user = view(at, to);
    if (user.count == 0) return;
    if (reduces(call_.kind) && call_.op == ReduceOp::kAverage) divide_lane(view(at, from));
    if (user.memory == Memory::kHost && !call_.direct) {
      if (to != from) convert(user, view(at, from));
      return;
    }
    convert_lane(copied(at, from), view(at, from));
    motley::copy(user, copied(at, from), stream_out());
    copies = true;
  });
  if (copies || call_.direct) at.slot->copied.record(stream_out());
  return copies || call_.direct;
}

std::byte* Buffers::head(const PieceMemory& at, int chunk) const {
  return view(at, layout_.at(at.piece, chunk)).data;
}

void Buffers::pack_heads(const PieceMemory& at) const {
  for (int to = 0; to < shape_.size; ++to) {
    const std::uint64_t count = call_.in_counts[static_cast<std::size_t>(to)];
    const View part = view(at, layout_.home(at.piece, {Place::kIn, to}));
    std::byte* const packed = head(at, to);
    std::memcpy(packed, &count, Layout::kCountBytes);
    if (part.count != 0) std::memcpy(packed + Layout::kCountBytes, part.data, part.size_bytes());
  }
}

void Buffers::unpack_heads(const PieceMemory& at) const {
  for (int from = 0; from < shape_.size; ++from) {
    const View part = view(at, layout_.home(at.piece, {Place::kOut, from}));
    const std::byte* const packed = head(at, shape_.size + from);
    if (part.count != 0) std::memcpy(part.data, packed + Layout::kCountBytes, part.size_bytes());
  }
}

std::size_t Buffers::said_count(const PieceMemory& at, int from) const {
  std::uint64_t count = 0;
  std::memcpy(&count, head(at, shape_.size + from), Layout::kCountBytes);
  return count;
}

void Buffers::mark_end(Event& event) const {
  event.record(stream_in());
  event.hold(stream_out());
  event.record(stream_out());
}

std::size_t Buffers::message_bytes(std::uint32_t piece, const Step& step) const {
  std::size_t count = 0;
  layout_.each_region(piece, step.first_chunk, step.chunk_count,
                      [&](const Region& region) { count += region.count; });
  return count * size_bytes(work_);
}

ConstBytes Buffers::read(const PieceMemory& at, const Step& step, Arena::Block& packed) {
  Region only;
  int regions = 0;
  layout_.each_region(at.piece, step.first_chunk, step.chunk_count, [&](const Region& region) {
    only = region;
    ++regions;
  });
  if (regions <= 1) return ConstView(view(at, only)).bytes();
  const std::size_t bytes = message_bytes(at.piece, step);
  if (packed.capacity() < bytes) packed = arena_.take(bytes);
  std::byte* to = packed.data();
  layout_.each_region(at.piece, step.first_chunk, step.chunk_count, [&](const Region& region) {
    const View from = view(at, region);
    std::memcpy(to, from.data, from.size_bytes());
    to += from.size_bytes();
  });
  return {packed.data(), bytes};
}

void Buffers::write(const PieceMemory& at, const Step& step, ConstBytes data) {
  layout_.each_region(at.piece, step.first_chunk, step.chunk_count, [&](const Region& region) {
    const View to = view(at, region);
    const ConstBytes part = data.first(to.size_bytes());
    data = data.subspan(to.size_bytes());
    if (step.kind == Step::kRecvReduce) {
      reduce(to, part, call_.op);
    } else {
      std::memcpy(to.data, part.data(), part.size());
    }
  });
}

// Marks the end of what uses the message's slot, also where the device refuses the rest of it.
template <class Work>
void Buffers::use(DeviceMessage& message, Work&& work) const {
  try {
    work();
  } catch (const Error&) {
    message.slot->copied.record(stream_out());
    throw;
  }
  message.slot->copied.record(stream_out());
}

void Buffers::gather(const PieceMemory& at, const Step& step, DeviceMessage& message) {
  use(message, [&, to = message.bytes().data]() mutable {
    layout_.each_region(at.piece, step.first_chunk, step.chunk_count, [&](const Region& region) {
      const View from = view(at, region);
      motley::copy({to, from.count, from.dtype, Memory::kDevice}, from, stream_out());
      to += from.size_bytes();
    });
  });
}

void Buffers::write(const PieceMemory& at, const Step& step, DeviceMessage& message) {
  use(message, [&, from = message.bytes().data]() mutable {
    layout_.each_region(at.piece, step.first_chunk, step.chunk_count, [&](const Region& region) {
      const View to = view(at, region);
      const ConstView part{from, to.count, to.dtype, Memory::kDevice};
      from += to.size_bytes();
      if (step.kind == Step::kRecvReduce) {
        reduce_lane(to, part);
      } else {
        motley::copy(to, part, stream_out());
      }
    });
  });
}

void Buffers::move(const PieceMemory& at, const Step& step) {
  for (int i = 0; i < step.chunk_count; ++i) {
    const View from = view(at, layout_.at(at.piece, step.first_chunk + i));
    const View to = view(at, layout_.at(at.piece, step.to_chunk + i));
    if (to.count == 0) continue;
    if (step.kind == Step::kReduce) {
      reduce_lane(to, from);
    } else {
      convert_lane(to, from);
    }
  }
}

}  // namespace motley
