// test/support/cuda/cuda_fp16.h: as cuda_runtime.h beside it.
#pragma once

#include "test/support/simt/short_floats.h"
