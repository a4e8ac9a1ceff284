#include <sanitizer/tsan_interface.h>

#include "test/support/fiber_switch.h"

namespace motley::test {

void make_state(StackSide& fiber) { fiber.state = __tsan_create_fiber(0); }
void drop_state(StackSide& fiber) { __tsan_destroy_fiber(fiber.state); }

void leaving(StackSide& from, const StackSide& to) {
  from.state = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(to.state, 0);
}

void leaving_for_good(const StackSide& to) { __tsan_switch_to_fiber(to.state, 0); }

void arrived(const StackSide&, StackSide&) {}

}  // namespace motley::test
