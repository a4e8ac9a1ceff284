// test/support/simt.h: what a .cu file sees where it is compiled as C++ to run on the CPU. The
// threads of a block are fibers; they switch where CUDA's would meet, and nowhere else.
//
// Compile it by motley_kernels() of test/support/CMakeLists.txt, which defines CUDA's words that
// are no names: __global__, __shared__ and the like. Supported is what the sections below declare.
#pragma once

#include "test/support/simt/atomic.h"
#include "test/support/simt/intrinsics.h"
#include "test/support/simt/launch.h"
#include "test/support/simt/types.h"
#include "test/support/simt/warp.h"
