// comm/executor/arguments.h: what one rank can see of a wrong call by itself.
#pragma once

#include <initializer_list>
#include <utility>

#include "comm/executor/call.h"

namespace motley {

// Throws kInvalid unless rank `rank` of `size` may make such a call on `group`.
void check_group(CallKind kind, const Group& group, int rank, int size);

// Throws kInvalid, with both numbers, unless the buffers, counts, op and weight of a call of `size`
// members fit it on member `index`; kUnavailable for memory of a device where there is none.
void check_arguments(const Call& call, int index, int size);

// The same for the sides of `who`, at least one of them in device memory, by name: throws unless
// each lies where it is said to.
void check_memory(const char* who, std::initializer_list<std::pair<const char*, ConstView>> sides);

}  // namespace motley
