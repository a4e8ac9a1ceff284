// comm/control/diagnosis.h: says why a call is late, from what the controller knows of its members.
#pragma once

#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/progress.h"
#include "comm/recorder.h"

namespace motley {

// A call that has not ended in time.
struct LateCall {
  GroupTag group;
  std::uint32_t number = 0;
  int rank = 0;              // who waits for it
  std::vector<int> members;  // ranks; empty: all that the report tells of
  Duration silence{};        // a member without a sign of life for so long counts as stopped
};

struct Diagnosis {
  std::vector<int> behind;  // ranks to blame, ascending; empty: all members are in the call
  std::string text;         // sentences: who is behind, since when, and each rank's last call
};

Diagnosis diagnose(const Report& report, const LateCall& call, TimePoint now);

// What a rank is doing, over several lines: its own latest calls, and where the others are.
//   who      "rank 3 of 8"
//   report   null: there is no controller, or it does not answer
std::string status_text(const std::string& who, const Recorder& recorder, const Report* report,
                        TimePoint now);

}  // namespace motley
