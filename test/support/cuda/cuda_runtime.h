// test/support/cuda/cuda_runtime.h: found in place of CUDA's own where a .cu file is compiled for
// the emulator; no CUDA header is needed.
#pragma once

#include "test/support/simt.h"
