// moe/timeline.h: when each operation of a program began and ended, measured by the executor or
// told by the simulator, which is said wherever it is shown.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "moe/program.h"

namespace motley::moe {

struct OpTime {
  Duration start{};
  Duration end{};
  Duration time() const noexcept { return end - start; }
  friend bool operator==(const OpTime&, const OpTime&) = default;
};

struct Timeline {
  bool simulated = false;
  int rank = 0;
  std::vector<OpTime> ops = {};  // as in the program, since its start
  TimePoint begin{};             // when that was, on the rank's clock
  Duration total() const noexcept;
};

// What each operation of each rank took itself: of collectives from when the last rank began, as
// those before only waited. [ranks][operations], of ranks whose clocks are the same: those of one
// host, or simulated.
std::vector<std::vector<Duration>> own_times(std::span<const Program> programs,
                                             std::span<const Timeline> timelines);

// For chrome://tracing or ui.perfetto.dev: a process a rank, a thread a lane; simulated ones are
// called so. As many programs as timelines.
std::string to_chrome_trace(std::span<const Program> programs, std::span<const Timeline> timelines);
// "simulated: 1.234 ms; 0 encode on compute, chunk 0: …: 0.000 to 0.100 ms", one line an operation.
std::string to_text(const Program& program, const Timeline& timeline);

}  // namespace motley::moe
