// test/support/fiber.h: a function that can be left and entered again, so that a test writes a
// simulated rank as blocking code.
//
//   Fiber fiber([&] { first(); fiber.suspend(); second(); });
//   fiber.resume();   // first()
//   fiber.resume();   // second()
#pragma once

#include <functional>
#include <memory>

namespace motley::test {

// All fibers of a test live on one thread.
class Fiber {
 public:
  // Does not run `body` yet. Its stack is 256 KiB; running over the end is a segmentation fault.
  explicit Fiber(std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();  // the body must have returned, or never been entered

  // Runs the body until it suspends or returns. Throws what the body throws. Not from a fiber.
  void resume();
  // Returns to resume(); from inside the body only.
  void suspend();
  bool finished() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace motley::test
