#include "comm/executor/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "comm/device.h"
#include "comm/error.h"

namespace motley {
namespace {

[[noreturn]] void refuse(const Call& call, const std::string& what) {
  throw Error(ErrorCode::kInvalid, fmt::format("{}: {}", name(call.kind), what));
}

// More than any buffer has where the sum has no room: counts that were negative must not wrap to
// one that fits.
std::size_t total(const std::vector<std::size_t>& counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts) {
    if (__builtin_add_overflow(sum, count, &sum)) return SIZE_MAX;
  }
  return sum;
}

// `counts` has a number for each member, and `view` as many elements as they are together.
void check_counts(const Call& call, const char* what, const std::vector<std::size_t>& counts,
                  ConstView view, int size) {
  if (counts.size() != static_cast<std::size_t>(size)) {
    refuse(call, fmt::format("there are {} counts of blocks of `{}` for {} members. Give each one.",
                             counts.size(), what, size));
  }
  if (total(counts) == view.count) return;
  refuse(call, fmt::format("the counts of blocks of `{}` sum to {}, but it has {} elements.", what,
                           total(counts), view.count));
}

// `one` is a block, of which `all` has one for each member.
void check_blocks(const Call& call, const char* all_name, ConstView all, ConstView one, int size) {
  const auto p = static_cast<std::size_t>(size);
  if (all.count % p == 0 && all.count / p == one.count) return;
  refuse(call, fmt::format("`{}` has {} elements, but the {} members' blocks of {} need {}.",
                           all_name, all.count, size, one.count, p * one.count));
}

void check_alike(const Call& call) {
  if (call.in.count == call.out.count) return;
  refuse(call, fmt::format("`in` has {} {} but `out` has {} {}. They must be alike.", call.in.count,
                           name(call.in.dtype), call.out.count, name(call.out.dtype)));
}

void check_sizes(const Call& call, int index, int size) {
  const bool is_root = index == call.root;
  switch (call.kind) {
    case CallKind::kReduceScatter:
      return check_blocks(call, "in", call.in, call.out, size);
    case CallKind::kAllGather:
      return check_blocks(call, "out", call.out, call.in, size);
    case CallKind::kGather:
      return is_root ? check_blocks(call, "out", call.out, call.in, size) : void();
    case CallKind::kScatter:
      return is_root ? check_blocks(call, "in", call.in, call.out, size) : void();
    case CallKind::kAllGatherV: {
      check_counts(call, "out", call.out_counts, call.out, size);
      const std::size_t due = call.out_counts[static_cast<std::size_t>(index)];
      if (call.in.count == due) return;
      return refuse(call, fmt::format("`in` has {} elements, but the count of this rank's block "
                                      "is {}.",
                                      call.in.count, due));
    }
    case CallKind::kAllToAllV:
      check_counts(call, "in", call.in_counts, call.in, size);
      return check_counts(call, "out", call.out_counts, call.out, size);
    case CallKind::kAllToAll:
      check_alike(call);
      if (call.in.count % static_cast<std::size_t>(size) == 0) return;
      return refuse(call, fmt::format("`in` has {} elements, no multiple of the {} members.",
                                      call.in.count, size));
    case CallKind::kReduce:
      return is_root ? check_alike(call) : void();
    case CallKind::kSendRecv:
    case CallKind::kBarrier:
      return;
    default:
      return check_alike(call);
  }
}

// Whether `in` and `out` are the same memory, or one is this rank's block of the other.
bool lies_in_place(const Call& call, int index) {
  const std::byte* const in = call.in.data;
  const std::byte* const out = call.out.data;
  const auto i = static_cast<std::size_t>(index);
  switch (call.kind) {
    case CallKind::kReduceScatter:
    case CallKind::kScatter:
      return in + i * call.out.size_bytes() == out;
    case CallKind::kAllGather:
    case CallKind::kGather:
      return out + i * call.in.size_bytes() == in;
    case CallKind::kAllGatherV: {
      const auto begin = call.out_counts.begin();
      const auto before = std::accumulate(begin, begin + index, std::size_t{0});
      return out + before * size_bytes(call.out.dtype) == in;
    }
    case CallKind::kAllToAllV:
      return in == out && call.in_counts == call.out_counts;
    default:
      return in == out;
  }
}

void check_overlap(const Call& call, int index) {
  if (!overlap(call.in, call.out) || lies_in_place(call, index)) return;
  refuse(call, fmt::format("`in`, of {} bytes, and `out`, of {}, overlap by accident. Let them be "
                           "apart, or lie as communicator.h says of calls in place.",
                           call.in.size_bytes(), call.out.size_bytes()));
}

void check_op(const Call& call) {
  if (call.op != ReduceOp::kWeightedSum) {
    if (call.weight == 1) return;
    refuse(call, fmt::format("the weight is {}, but the operation {}. Use weighted_sum.",
                             call.weight, name(call.op)));
  }
  if (!is_floating(call.out.dtype)) {
    refuse(call, fmt::format("there is no weighted sum of {}. Use a floating type.",
                             name(call.out.dtype)));
  }
  if (!std::isfinite(call.weight))
    refuse(call, fmt::format("the weight is {}. It must be finite.", call.weight));
}

void check_side(const char* who, const char* what, ConstView view) {
  if (view.count == 0) return;
  const Memory found = memory_of(view.data);
  if (found == view.memory) return;
  const auto text = [](Memory memory) { return memory == Memory::kHost ? "host" : "device"; };
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: `{}` is said to lie in {} memory, but its {} bytes at {} are {} "
                          "memory. Set View::memory to what it is.",
                          who, what, text(view.memory), view.size_bytes(), fmt::ptr(view.data),
                          text(found)));
}

}  // namespace

void check_memory(const char* who, std::initializer_list<std::pair<const char*, ConstView>> sides) {
  if (device_count() == 0) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("{}: a buffer is said to lie in device memory, but there is no device: "
                            "CUDA is not in this build, or finds none. Use host memory.",
                            who));
  }
  for (const auto& [what, view] : sides) check_side(who, what, view);
}

void check_group(CallKind kind, const Group& group, int rank, int size) {
  if (!group.contains(rank)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: rank {} is not in the group of {} ranks that it was called on.",
                            name(kind), rank, group.size()));
  }
  if (group.tag().is_pair()) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{}: the group's id, {:#x}, is one of those of send and recv. Use "
                            "ids below 2^62.",
                            name(kind), group.tag().id));
  }
  const int last = *std::max_element(group.ranks().begin(), group.ranks().end());
  if (last < size) return;
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{}: the group names rank {}, but there are {} ranks.", name(kind), last, size));
}

void check_arguments(const Call& call, int index, int size) {
  if (call.on_device()) check_memory(name(call.kind), {{"in", call.in}, {"out", call.out}});
  if (call.in.dtype != call.out.dtype) {
    refuse(call,
           fmt::format("`in` has {} {} but `out` has {} {}. They must be alike.", call.in.count,
                       name(call.in.dtype), call.out.count, name(call.out.dtype)));
  }
  check_sizes(call, index, size);
  check_overlap(call, index);
  if (reduces(call.kind)) check_op(call);
}

}  // namespace motley
