// test/support/simt/strand.h: a stack on which one function after another runs, each of which may
// be left and entered again; far cheaper than test/support/fiber.h, and without exceptions.
#pragma once

#include <cstddef>

#include "test/support/fiber_switch.h"

namespace motley::simt {

class Strand {
 public:
  Strand();
  Strand(const Strand&) = delete;
  Strand& operator=(const Strand&) = delete;
  ~Strand();

  // Runs `body(argument)` until it suspends; then its rest, by resume(). No exception may leave it.
  void start(void (*body)(void*), void* argument);
  void resume();
  // From inside the body: returns to start() or resume().
  void suspend();
  // Whether a body was started that has not returned.
  bool busy() const noexcept { return body_ != nullptr; }
  // Forgets the body; nothing on its stack is destroyed.
  void abandon();

  // Whether `address` lies on the stack.
  bool holds(const void* address) const noexcept {
    const auto* const at = static_cast<const std::byte*>(address);
    return at >= bottom_ && at < bottom_ + kBytes;
  }

 private:
  static constexpr std::size_t kBytes = 128 << 10;
  struct Loop;

  void make_context();

  std::byte* bottom_ = nullptr;
  void* context_ = nullptr;
  void* caller_ = nullptr;
  test::StackSide inside_;
  test::StackSide outside_;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
};

}  // namespace motley::simt
