// runtime/numeric/second_moment.h: variances of mixtures, which average as second moments do.
#pragma once

#include "comm/view.h"

namespace motley::runtime {

// variances += means^2, element by element: now the second moments; with -1 as `sign` back again,
// no variance below 0. Both [n] of one floating dtype in host memory.
void add_squares(View variances, ConstView means, int sign);

}  // namespace motley::runtime
