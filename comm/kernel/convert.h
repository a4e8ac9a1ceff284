// comm/kernel/convert.h: copies that change the element type, or scale.
#pragma once

#include "comm/view.h"

namespace motley {

// out[i] = factor * in[i], rounded to out's type; the factor first to in's, float at least.
//   out, in  [n]; of the same dtype, or one a 16-bit float and the other float32; in the same
//            memory, or without overlap
//   factor   other than 1 for floating types only
void convert(View out, ConstView in, double factor = 1);

}  // namespace motley
