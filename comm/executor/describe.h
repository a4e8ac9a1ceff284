// comm/executor/describe.h: how errors speak of calls.
#pragma once

#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/executor/call.h"
#include "comm/transport/transport.h"

namespace motley {

// "rank 3 of 8: all_reduce #1580 (ring, 1048576 float32)", or "… #7 of group 5.0 …".
std::string who(const Transport& transport, const Call& call, const char* algorithm);
// "all_reduce of count 4096 float32, sum (ring, 4 pieces)".
std::string to_text(const Fingerprint& fingerprint);
// kMismatch: `theirs` is what rank `peer` calls.
Error disagreement(const std::string& who, const Fingerprint& ours, const Fingerprint& theirs,
                   int peer);
Error loss(const std::string& who, int rank, const std::string& why);
Error abortion(const std::string& who, const std::string& why);
// `waiting`: "waiting for rank 2 (shm) to …".
Error lateness(const std::string& who, const Call& call, TimePoint now, const std::string& waiting,
               const std::vector<int>& ranks);

}  // namespace motley
