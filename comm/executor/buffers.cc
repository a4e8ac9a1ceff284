#include "comm/executor/buffers.h"

#include <cstring>

#include "comm/convert.h"
#include "comm/kernel/reduce.h"

namespace motley {

Buffers::Buffers(Arena& arena, const Call& call, const Shape& shape, const Schedule& schedule,
                 std::size_t message_bytes)
    : arena_(arena),
      call_(call),
      shape_(shape),
      schedule_(schedule),
      work_(work_dtype(call)),
      layout_(call, shape, schedule, work_, message_bytes) {}

// `in` is never written: no schedule that check() accepts does.
View Buffers::view(const PieceMemory& at, const Region& region) const noexcept {
  const DType dtype = region.where == Region::kLane ? work_ : call_.out.dtype;
  const std::size_t offset = region.first * size_bytes(dtype);
  std::byte* const base = region.where == Region::kIn    ? const_cast<std::byte*>(call_.in.data)
                          : region.where == Region::kOut ? call_.out.data
                                                         : at.memory.data();
  return {base == nullptr ? nullptr : base + offset, region.count, dtype};
}

// Brings this rank's own input to where it is worked on.
void Buffers::bring_in(const PieceMemory& at, const Region& to, const Region& from) {
  const bool scales = reduces(call_.kind) && call_.op == ReduceOp::kWeightedSum;
  convert(view(at, to), view(at, from), scales ? call_.weight : 1);
}

// Brings a result to where the user wants it.
void Buffers::bring_out(const PieceMemory& at, const Region& to, const Region& from) {
  if (call_.op == ReduceOp::kAverage) divide(view(at, from), shape_.size);
  if (to != from) convert(view(at, to), view(at, from));
}

void Buffers::begin(PieceMemory& at) {
  const std::size_t bytes = layout_.lane_elements() * size_bytes(work_);
  if (at.memory.capacity() < bytes) at.memory = arena_.take(bytes);
  const std::uint32_t piece = at.piece;
  if (layout_.is_cut()) {
    if (call_.kind == CallKind::kBroadcast && shape_.rank != shape_.root) return;
    Region in = layout_.home(piece, {});
    in.where = Region::kIn;
    return bring_in(at, layout_.cut(piece), in);
  }
  if (layout_.stages(Place::kIn)) {
    for (int block = 0; block < shape_.size; ++block)
      bring_in(at, layout_.at(piece, block), layout_.home(piece, {Place::kIn, block}));
  }
  const bool gathers = call_.kind == CallKind::kAllGather || call_.kind == CallKind::kAllGatherV ||
                       (call_.kind == CallKind::kGather && shape_.rank == shape_.root);
  if (!gathers) return;
  const Region own = layout_.at(piece, shape_.rank);
  const Region first = layout_.home(0, {Place::kOut, shape_.rank});
  bring_in(at, own, {Region::kIn, own.first - first.first, own.count});
}

void Buffers::finish(const PieceMemory& at) {
  if (!reduces(call_.kind) || (call_.kind == CallKind::kReduce && shape_.rank != shape_.root))
    return;
  if (layout_.is_cut()) return bring_out(at, layout_.home(at.piece, {}), layout_.cut(at.piece));
  bring_out(at, layout_.home(at.piece, {Place::kOut, 0}), layout_.at(at.piece, shape_.size));
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

void Buffers::move(const PieceMemory& at, const Step& step) {
  for (int i = 0; i < step.chunk_count; ++i) {
    const View from = view(at, layout_.at(at.piece, step.first_chunk + i));
    const View to = view(at, layout_.at(at.piece, step.to_chunk + i));
    if (to.count == 0) continue;
    if (step.kind == Step::kReduce) {
      reduce(to, ConstView(from).bytes(), call_.op);
    } else {
      convert(to, from);
    }
  }
}

}  // namespace motley
