// test/runtime/method_options.h: what the tests of all methods tell them.
#pragma once

#include "runtime/synchronizer.h"

namespace motley::runtime {

// Rounds of all come often; nobody is dropped; what hangs does so for a minute.
inline const SynchronizerOptions kOptions{.group_size = 2,
                                          .local_steps = 1,
                                          .backup = 0,
                                          .staleness = 1,
                                          .sync_rounds = 3,
                                          .timeout = seconds(60),
                                          .finish_timeout = seconds(60)};

}  // namespace motley::runtime
