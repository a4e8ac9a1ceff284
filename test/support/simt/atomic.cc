#include "test/support/simt/atomic.h"

#include <atomic>
#include <bit>

#include "comm/dtype.h"
#include "test/support/simt/block.h"
#include "test/support/simt/observer.h"
#include "test/support/simt/short_floats.h"

namespace motley::simt {
namespace {

template <class T>
T applied(Atomic how, T old, T value) {
  switch (how) {
    case Atomic::kAdd:
      if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        return static_cast<T>(static_cast<U>(old) + static_cast<U>(value));
      } else {
        return old + value;
      }
    case Atomic::kMin:
      return value < old ? value : old;
    case Atomic::kMax:
      return old < value ? value : old;
    case Atomic::kExchange:
      return value;
    case Atomic::kIncrement:
      return old >= value ? T{0} : static_cast<T>(old + T{1});
    case Atomic::kDecrement:
      return old == T{0} || old > value ? value : static_cast<T>(old - T{1});
    default:
      break;
  }
  if constexpr (std::is_integral_v<T>) {
    if (how == Atomic::kAnd) return static_cast<T>(old & value);
    if (how == Atomic::kOr) return static_cast<T>(old | value);
    if (how == Atomic::kXor) return static_cast<T>(old ^ value);
  }
  return old;
}

// Kernels may run on several threads of the host.
template <class T>
T update(Atomic how, T* at, T value) {
  const std::atomic_ref<T> cell(*at);
  T old = cell.load();
  while (!cell.compare_exchange_weak(old, applied(how, old, value))) {
  }
  return old;
}

void note(const void* at, std::size_t bytes, const void* place) {
  Thread& thread = *current();
  if (Observer* const observer = thread.runner->observer())
    observer->touch(thread, {at, bytes, Access::Kind::kAtomic, place, bytes});
}

}  // namespace

template <class T>
T atomic(Atomic how, T* at, T value) {
  note(at, sizeof(T), __builtin_return_address(0));
  return update(how, at, value);
}

template int atomic(Atomic, int*, int);
template unsigned atomic(Atomic, unsigned*, unsigned);
template long long atomic(Atomic, long long*, long long);
template unsigned long long atomic(Atomic, unsigned long long*, unsigned long long);
template float atomic(Atomic, float*, float);
template double atomic(Atomic, double*, double);

template <class T>
T compare_and_swap(T* at, T expected, T desired) {
  note(at, sizeof(T), __builtin_return_address(0));
  std::atomic_ref<T>(*at).compare_exchange_strong(expected, desired);
  return expected;
}

template unsigned short compare_and_swap(unsigned short*, unsigned short, unsigned short);
template int compare_and_swap(int*, int, int);
template unsigned compare_and_swap(unsigned*, unsigned, unsigned);
template long long compare_and_swap(long long*, long long, long long);
template unsigned long long compare_and_swap(unsigned long long*, unsigned long long,
                                             unsigned long long);

float2 atomic_add_each(float2* at, float2 value) {
  note(at, sizeof *at, __builtin_return_address(0));
  return {update(Atomic::kAdd, &at->x, value.x), update(Atomic::kAdd, &at->y, value.y)};
}

float4 atomic_add_each(float4* at, float4 value) {
  note(at, sizeof *at, __builtin_return_address(0));
  return {update(Atomic::kAdd, &at->x, value.x), update(Atomic::kAdd, &at->y, value.y),
          update(Atomic::kAdd, &at->z, value.z), update(Atomic::kAdd, &at->w, value.w)};
}

namespace {

template <class T>
std::uint16_t add_rounded(std::uint16_t* at, std::uint16_t value) {
  const std::atomic_ref<std::uint16_t> cell(*at);
  const auto number = [](std::uint16_t bits) { return static_cast<float>(std::bit_cast<T>(bits)); };
  std::uint16_t old = cell.load();
  while (!cell.compare_exchange_weak(old, T(number(old) + number(value)).bits)) {
  }
  return old;
}

std::uint16_t add_short(ShortFloat kind, std::uint16_t* at, std::uint16_t value) {
  return kind == ShortFloat::kHalf ? add_rounded<half>(at, value)
                                   : add_rounded<bfloat16>(at, value);
}

}  // namespace

std::uint16_t atomic_add(ShortFloat kind, std::uint16_t* at, std::uint16_t value) {
  note(at, sizeof *at, __builtin_return_address(0));
  return add_short(kind, at, value);
}

ShortPair atomic_add_each(ShortFloat kind, std::uint16_t* at, ShortPair value) {
  note(at, 2 * sizeof *at, __builtin_return_address(0));
  return {add_short(kind, at, value.x), add_short(kind, at + 1, value.y)};
}

void fence(Fence scope) noexcept {
  Thread& thread = *current();
  Observer* const observer = thread.runner->observer();
  if (observer != nullptr && scope == Fence::kDevice) observer->fenced(thread);
}

}  // namespace motley::simt
