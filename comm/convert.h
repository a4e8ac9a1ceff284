// comm/convert.h: copies that change the element type, or scale.
//
//   convert(short_weights, weights);                     // float32 to bfloat16, on the host
//   convert_on_device(short_weights, weights, stream);   // the same bits, in stream order
#pragma once

#include "comm/device.h"
#include "comm/view.h"

namespace motley {

// out[i] = factor * in[i], rounded to nearest even in out's type; the factor first to in's, float
// at least.
//   out, in  [n]; of the same dtype, or one a 16-bit float and the other float32; in the same
//            memory, or without overlap
//   factor   other than 1 for floating types only
// NaN stays NaN; what is too large for a 16-bit float becomes infinity.
void convert(View out, ConstView in, double factor = 1);

// The same on device memory, in stream order, bit for bit but for the payload of NaN.
void convert_on_device(View out, ConstView in, StreamRef stream, double factor = 1);

}  // namespace motley
