#include "test/support/fiber_switch.h"

namespace motley::test {

void make_state(StackSide&) {}
void drop_state(StackSide&) {}
void leaving(StackSide&, const StackSide&) {}
void leaving_for_good(const StackSide&) {}
void arrived(const StackSide&, StackSide&) {}

}  // namespace motley::test
