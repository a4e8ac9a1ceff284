#include "test/support/fiber.h"

#include <cxxabi.h>

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <exception>
#include <utility>

// Sanitizers must be told when the stack changes. This is the one place that knows which is there.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace motley::test {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

// One side of a switch: the thread's own stack, or a fiber's.
struct Side {
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* address_state = nullptr;  // AddressSanitizer's, while the other side runs
  void* thread_state = nullptr;   // ThreadSanitizer's
};

#if defined(__SANITIZE_ADDRESS__)
void leaving(Side& from, const Side& to) {
  __sanitizer_start_switch_fiber(&from.address_state, to.bottom, to.size);
}
void leaving_for_good(const Side& to) {
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
}
void arrived(const Side& at, Side& from) {
  __sanitizer_finish_switch_fiber(at.address_state, &from.bottom, &from.size);
}
void make_state(Side&) {}
void drop_state(Side&) {}
#elif defined(__SANITIZE_THREAD__)
void leaving(Side& from, const Side& to) {
  from.thread_state = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.thread_state, 0);
}
void leaving_for_good(const Side& to) { __tsan_switch_to_fiber(to.thread_state, 0); }
void arrived(const Side&, Side&) {}
void make_state(Side& side) { side.thread_state = __tsan_create_fiber(0); }
void drop_state(Side& side) { __tsan_destroy_fiber(side.thread_state); }
#else
void leaving(Side&, const Side&) {}
void leaving_for_good(const Side&) {}
void arrived(const Side&, Side&) {}
void make_state(Side&) {}
void drop_state(Side&) {}
#endif

// The exceptions being handled are kept per thread; a fiber that suspends inside a catch block must
// find its own again. The ABI fixes their size: a pointer and a counter.
class HandledExceptions {
 public:
  void swap() noexcept {
    std::array<std::byte, kBytes> now;
    std::memcpy(now.data(), abi::__cxa_get_globals(), kBytes);
    std::memcpy(abi::__cxa_get_globals(), saved_.data(), kBytes);
    saved_ = now;
  }

 private:
  static constexpr std::size_t kBytes = sizeof(void*) + sizeof(unsigned int);
  std::array<std::byte, kBytes> saved_{};
};

}  // namespace

struct Fiber::Impl {
  explicit Impl(std::function<void()> body_) : body(std::move(body_)), stack(allocator.allocate()) {
    inside.bottom = static_cast<std::byte*>(stack.sp) - stack.size;
    inside.size = stack.size;
    make_state(inside);
  }
  ~Impl() {
    drop_state(inside);
    if (!entered) allocator.deallocate(stack);  // else the fiber has given it back
  }

  boost::context::fiber run(boost::context::fiber&& from) {
    arrived(inside, outside);
    caller = std::move(from);
    try {
      body();
    } catch (...) {
      error = std::current_exception();
    }
    finished = true;
    leaving_for_good(outside);
    return std::move(caller);
  }

  std::function<void()> body;
  boost::context::protected_fixedsize_stack allocator{kStackBytes};
  boost::context::stack_context stack;
  boost::context::fiber fiber;
  boost::context::fiber caller;
  Side inside;
  Side outside;
  HandledExceptions handled;
  std::exception_ptr error;
  bool entered = false;
  bool finished = false;
};

Fiber::Fiber(std::function<void()> body) : impl_(std::make_unique<Impl>(std::move(body))) {}

Fiber::~Fiber() { assert(!impl_->entered || impl_->finished); }

void Fiber::resume() {
  Impl& self = *impl_;
  assert(!self.finished);
  if (!self.entered) {
    self.entered = true;
    self.fiber = boost::context::fiber(
        std::allocator_arg,
        boost::context::preallocated(self.stack.sp, self.stack.size, self.stack), self.allocator,
        [&self](boost::context::fiber&& from) { return self.run(std::move(from)); });
  }
  self.handled.swap();
  leaving(self.outside, self.inside);
  self.fiber = std::move(self.fiber).resume();
  arrived(self.outside, self.inside);
  self.handled.swap();
  if (self.error) std::rethrow_exception(std::exchange(self.error, nullptr));
}

void Fiber::suspend() {
  Impl& self = *impl_;
  leaving(self.inside, self.outside);
  self.caller = std::move(self.caller).resume();
  arrived(self.inside, self.outside);
}

bool Fiber::finished() const noexcept { return impl_->finished; }

}  // namespace motley::test
