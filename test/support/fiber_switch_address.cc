#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include "test/support/fiber_switch.h"

namespace motley::test {

void make_state(StackSide&) {}
// Marks of the ended fiber's variables would outlive its stack, and be found by what the loader
// maps there next.
void drop_state(StackSide& fiber) { __asan_unpoison_memory_region(fiber.bottom, fiber.size); }

void leaving(StackSide& from, const StackSide& to) {
  __sanitizer_start_switch_fiber(&from.state, to.bottom, to.size);
}

void leaving_for_good(const StackSide& to) {
  __sanitizer_start_switch_fiber(nullptr, to.bottom, to.size);
}

void arrived(const StackSide& at, StackSide& from) {
  __sanitizer_finish_switch_fiber(at.state, &from.bottom, &from.size);
}

}  // namespace motley::test
