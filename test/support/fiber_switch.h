// test/support/fiber_switch.h: tells a sanitizer that the stack is about to change, or has changed.
// One file for each sanitizer, and one for none.
#pragma once

#include <cstddef>

namespace motley::test {

// One side of a switch: the thread's own stack, or a fiber's.
struct StackSide {
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* state = nullptr;  // the sanitizer's
};

void make_state(StackSide& fiber);
void drop_state(StackSide& fiber);
// On `from`, just before the switch to `to`.
void leaving(StackSide& from, const StackSide& to);
// The same, where `from` ends with the switch.
void leaving_for_good(const StackSide& to);
// On `at`, just after the switch from `from`.
void arrived(const StackSide& at, StackSide& from);

}  // namespace motley::test
