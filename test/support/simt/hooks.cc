// What kernels call that were compiled to tell of their accesses: GCC's ThreadSanitizer and
// coverage put calls of these functions before each load and store and at each basic block, and
// its bounds checks where an index leaves an array. Nothing of these libraries is linked.
#include <fmt/format.h>

#include <cstddef>

#include "test/support/simt/observer.h"

namespace motley::simt {
namespace {

// Calls body(observer, thread) if a kernel runs here that is watched. While it runs, no kernel
// does: what is told may itself use functions that were compiled to tell.
template <class Body>
void tell(Body&& body) {
  Thread* const thread = current();
  if (thread == nullptr) return;
  Observer* const observer = thread->runner->observer();
  if (observer == nullptr) return;
  set_current(nullptr);
  body(*observer, *thread);
  set_current(thread);
}

// One instruction of a device.
void touch(const void* at, std::size_t bytes, Access::Kind kind, const void* place) {
  tell([&](Observer& observer, Thread& thread) {
    observer.touch(thread, {at, bytes, kind, place, bytes});
  });
}

// What is not known to lie at a multiple of its size, which takes a device several instructions.
void touch_range(const void* at, std::size_t bytes, Access::Kind kind, const void* place) {
  tell([&](Observer& observer, Thread& thread) {
    observer.touch(thread, {at, bytes, kind, place});
  });
}

}  // namespace
}  // namespace motley::simt

// NOLINTBEGIN: the names are GCC's

using motley::simt::Access;
using motley::simt::touch;
using motley::simt::touch_range;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

void __tsan_read1(void* at) { touch(at, 1, Access::Kind::kRead, __builtin_return_address(0)); }
void __tsan_read2(void* at) { touch(at, 2, Access::Kind::kRead, __builtin_return_address(0)); }
void __tsan_read4(void* at) { touch(at, 4, Access::Kind::kRead, __builtin_return_address(0)); }
void __tsan_read8(void* at) { touch(at, 8, Access::Kind::kRead, __builtin_return_address(0)); }
void __tsan_read16(void* at) { touch(at, 16, Access::Kind::kRead, __builtin_return_address(0)); }
void __tsan_write1(void* at) { touch(at, 1, Access::Kind::kWrite, __builtin_return_address(0)); }
void __tsan_write2(void* at) { touch(at, 2, Access::Kind::kWrite, __builtin_return_address(0)); }
void __tsan_write4(void* at) { touch(at, 4, Access::Kind::kWrite, __builtin_return_address(0)); }
void __tsan_write8(void* at) { touch(at, 8, Access::Kind::kWrite, __builtin_return_address(0)); }
void __tsan_write16(void* at) { touch(at, 16, Access::Kind::kWrite, __builtin_return_address(0)); }

void __tsan_read_range(void* at, std::size_t bytes) {
  touch_range(at, bytes, Access::Kind::kRead, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes) {
  touch_range(at, bytes, Access::Kind::kWrite, __builtin_return_address(0));
}

void __sanitizer_cov_trace_pc() {
  const void* const place = __builtin_return_address(0);
  motley::simt::tell([&](motley::simt::Observer& observer, motley::simt::Thread& thread) {
    observer.enter(thread, place);
  });
}

// Of a `Site` only the beginning is needed: where it is in the source.
struct MotleySite {
  const char* file;
  unsigned line;
  unsigned column;
};

void __ubsan_handle_out_of_bounds(const MotleySite* site, std::size_t index) {
  motley::simt::Thread* const thread = motley::simt::current();
  if (thread == nullptr) return;
  thread->runner->give_up(
      {motley::simt::FaultKind::kOutOfBounds, thread, nullptr, __builtin_return_address(0),
       fmt::format("index {} lies outside of an array, {}:{}", index, site->file, site->line)});
}

}  // extern "C"

// NOLINTEND
