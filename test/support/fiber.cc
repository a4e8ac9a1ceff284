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

#include "test/support/fiber_switch.h"

namespace motley::test {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;

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
  StackSide inside;
  StackSide outside;
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
