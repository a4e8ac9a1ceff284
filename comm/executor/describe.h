// comm/executor/describe.h: how errors speak of calls.
#pragma once

#include <string>

#include "comm/executor/call.h"
#include "comm/transport/transport.h"

namespace motley {

// "rank 3 of 8: all_reduce #1580 (ring, 1048576 float32)", or "… #7 of group 5.0 …".
std::string who(const Transport& transport, const Call& call, const char* algorithm);
// "all_reduce of count 4096 float32, sum (ring, 4 pieces)".
std::string to_text(const Fingerprint& fingerprint);

}  // namespace motley
