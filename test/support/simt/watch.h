// test/support/simt/watch.h: whether kernels are watched for check.h.
#pragma once

#include <functional>

#include "test/support/simt/block.h"

namespace motley::simt {

// Runs `grid` with an observer if checked() runs, one grid at a time, else with null.
void run_watched(const Shape& shape, const Call& call, const std::function<void(Observer*)>& grid);

}  // namespace motley::simt
