// comm/executor/arguments.h: what one rank can see of a wrong call by itself.
#pragma once

#include "comm/executor/call.h"

namespace motley {

// Throws kInvalid, with both numbers, unless the buffers, counts, op and weight of a call of `size`
// members fit it on member `index`; kUnavailable for memory of a device where there is none.
void check_arguments(const Call& call, int index, int size);

}  // namespace motley
