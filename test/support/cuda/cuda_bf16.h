// test/support/cuda/cuda_bf16.h: as cuda_runtime.h beside it.
#pragma once

#include "test/support/simt/short_floats.h"
