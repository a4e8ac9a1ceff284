// comm/bootstrap/meeting_file.h: a file in which rank 0 tells the others where its controller
// listens, on a file system that all of them see.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/clock.h"

namespace motley {

struct MeetingPlace {
  std::string token;
  std::vector<std::string> addresses;  // "tcp://10.0.0.1:4000", best first
};

// Appears whole: it is written under another name, readable by its owner only, and then renamed.
// Throws kIo.
void write_meeting_file(const std::string& path, const MeetingPlace& place);

// Empty while there is no such file. Throws kInvalid if it says something else or is of another
// user's; kIo if it cannot be read.
std::optional<MeetingPlace> read_meeting_file(const std::string& path);

}  // namespace motley
