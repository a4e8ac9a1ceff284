// test/support/cuda/cooperative_groups.h: as cuda_runtime.h beside it.
#pragma once

#include "test/support/simt/groups.h"
