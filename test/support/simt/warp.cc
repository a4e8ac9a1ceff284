#include "test/support/simt/warp.h"

#include <fmt/format.h>

#include "test/support/simt/block.h"
#include "test/support/simt/observer.h"

namespace motley::simt {
namespace {

// Calls body(lane) for the lanes of `mask` that the block has.
template <class Body>
void for_each(const Warp& warp, std::uint32_t mask, Body&& body) {
  for (std::uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    Thread* const lane = warp[static_cast<unsigned>(std::countr_zero(rest))];
    if (lane != nullptr) body(*lane);
  }
}

void combine_nothing(const Warp& warp, std::uint32_t mask) {
  const Thread& first = *warp[static_cast<unsigned>(std::countr_zero(mask))];
  if (Observer* const observer = first.runner->observer()) observer->warp_met(warp, mask);
}

// `argument` is the lane to read from; one that the block does not have gives no small number.
void combine_shuffle(const Warp& warp, std::uint32_t mask) {
  for_each(warp, mask, [&](Thread& lane) {
    const Thread* const from = warp[lane.argument];
    lane.result = from == nullptr ? 0xc7c7c7c7c7c7c7c7u : from->value;
  });
}

void combine_ballot(const Warp& warp, std::uint32_t mask) {
  std::uint32_t votes = 0;
  for_each(warp, mask,
           [&](Thread& lane) { votes |= static_cast<std::uint32_t>(lane.value) << lane.lane; });
  for_each(warp, mask, [&](Thread& lane) { lane.result = votes; });
}

void combine_match(const Warp& warp, std::uint32_t mask) {
  for_each(warp, mask, [&](Thread& lane) {
    std::uint32_t same = 0;
    for_each(warp, mask, [&](Thread& other) {
      if (other.value == lane.value) same |= 1u << other.lane;
    });
    lane.result = same;
  });
}

std::uint32_t reduced(Reduction how, std::uint32_t a, std::uint32_t b) {
  const bool less = a < b;
  const bool less_signed = static_cast<std::int32_t>(a) < static_cast<std::int32_t>(b);
  switch (how) {
    case Reduction::kAdd:
      return a + b;
    case Reduction::kMin:
      return less ? a : b;
    case Reduction::kMax:
      return less ? b : a;
    case Reduction::kMinSigned:
      return less_signed ? a : b;
    case Reduction::kMaxSigned:
      return less_signed ? b : a;
    case Reduction::kAnd:
      return a & b;
    case Reduction::kOr:
      return a | b;
    case Reduction::kXor:
      return a ^ b;
  }
  return 0;
}

// `argument` is the Reduction.
void combine_reduce(const Warp& warp, std::uint32_t mask) {
  bool first = true;
  std::uint32_t all = 0;
  for_each(warp, mask, [&](Thread& lane) {
    const auto value = static_cast<std::uint32_t>(lane.value);
    all = first ? value : reduced(static_cast<Reduction>(lane.argument), all, value);
    first = false;
  });
  for_each(warp, mask, [&](Thread& lane) { lane.result = all; });
}

// The lane from which `lane` reads; itself, beyond the ends of its segment.
int source_of(Shuffle how, int lane, int by, int width) {
  const int first = lane / width * width;
  switch (how) {
    case Shuffle::kFrom:
      return first + (by & (width - 1));
    case Shuffle::kUp:
      return lane - by < first ? lane : lane - by;
    case Shuffle::kDown:
      return lane + by >= first + width ? lane : lane + by;
    case Shuffle::kXor:  // an earlier segment gives its value, too
      return (lane ^ by) >= first + width ? lane : lane ^ by;
  }
  return lane;
}

std::uint64_t exchange(std::uint32_t mask, Combine combine, std::uint64_t value,
                       std::uint32_t argument, const void* place) {
  Thread& thread = *current();
  return thread.runner->exchange(thread, mask, combine, value, argument, place);
}

}  // namespace

std::uint64_t shuffle(Shuffle how, std::uint32_t mask, std::uint64_t value, int by, int width) {
  Thread& thread = *current();
  const void* const place = __builtin_return_address(0);
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0) {
    thread.runner->give_up({FaultKind::kExchange, &thread, nullptr, place,
                            fmt::format("shuffles with a width of {}", width)});
  }
  const auto source =
      static_cast<unsigned>(source_of(how, static_cast<int>(thread.lane), by, width));
  if ((mask >> source & 1) == 0) {
    thread.runner->give_up(
        {FaultKind::kExchange, &thread, nullptr, place,
         fmt::format("shuffles from lane {}, which is not in the mask 0x{:08x}", source, mask)});
  }
  return exchange(mask, combine_shuffle, value, source, place);
}

std::uint32_t ballot(std::uint32_t mask, bool predicate) {
  return static_cast<std::uint32_t>(
      exchange(mask, combine_ballot, predicate ? 1 : 0, 0, __builtin_return_address(0)));
}

std::uint32_t match_any(std::uint32_t mask, std::uint64_t value) {
  return static_cast<std::uint32_t>(
      exchange(mask, combine_match, value, 0, __builtin_return_address(0)));
}

std::uint32_t match_all(std::uint32_t mask, std::uint64_t value) {
  std::uint32_t there = 0;
  for_each(*current()->warp, mask, [&](Thread& lane) { there |= 1u << lane.lane; });
  const std::uint64_t same = exchange(mask, combine_match, value, 0, __builtin_return_address(0));
  return same == there ? mask : 0;
}

std::uint32_t reduce(Reduction how, std::uint32_t mask, std::uint32_t value) {
  return static_cast<std::uint32_t>(exchange(
      mask, combine_reduce, value, static_cast<std::uint32_t>(how), __builtin_return_address(0)));
}

void meet(std::uint32_t mask) {
  exchange(mask, combine_nothing, 0, 0, __builtin_return_address(0));
}

unsigned meet_all(bool predicate) {
  Thread& thread = *current();
  return thread.runner->barrier(thread, predicate, __builtin_return_address(0));
}

// Which lanes run together is the hardware's choice: here, each alone.
std::uint32_t active_lanes() noexcept { return 1u << current()->lane; }

// More come together than a device promises, so that what they do together is tested.
std::uint32_t coalesce() {
  Thread& thread = *current();
  return thread.runner->coalesce(thread, __builtin_return_address(0));
}

}  // namespace motley::simt
