#include "moe/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"
#include "comm/json.h"

namespace motley::moe {
namespace {

double microseconds(Duration time) { return static_cast<double>(time.count()) / 1e3; }

const char* origin(const Timeline& timeline) {
  return timeline.simulated ? "simulated" : "measured";
}

void check_sizes(const Program& program, const Timeline& timeline) {
  if (program.ops.size() == timeline.ops.size()) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("moe timeline: of {} operations, but the program has {}. Pass those that "
                          "belong together.",
                          timeline.ops.size(), program.ops.size()));
}

void check_ranks(std::span<const Program> programs, std::span<const Timeline> timelines) {
  if (programs.size() != timelines.size()) {
    throw Error(ErrorCode::kInvalid, fmt::format("moe timeline: {} programs, {} timelines. Pass as "
                                                 "many of both.",
                                                 programs.size(), timelines.size()));
  }
  for (std::size_t i = 0; i < programs.size(); ++i) check_sizes(programs[i], timelines[i]);
}

}  // namespace

Duration Timeline::total() const noexcept {
  Duration last{};
  for (const OpTime& op : ops) last = std::max(last, op.end);
  return last;
}

std::vector<std::vector<Duration>> own_times(std::span<const Program> programs,
                                             std::span<const Timeline> timelines) {
  check_ranks(programs, timelines);
  check_alike(programs);
  std::vector<std::vector<Duration>> times;
  for (std::size_t rank = 0; rank < programs.size(); ++rank) {
    times.emplace_back();
    for (std::size_t op = 0; op < programs[rank].ops.size(); ++op) {
      const Timeline& own = timelines[rank];
      TimePoint start = own.begin + own.ops[op].start;
      if (is_collective(programs[rank].ops[op].kind)) {
        for (const Timeline& other : timelines)
          start = std::max(start, other.begin + other.ops[op].start);
      }
      times.back().push_back(own.begin + own.ops[op].end - start);
    }
  }
  return times;
}

std::string to_chrome_trace(std::span<const Program> programs,
                            std::span<const Timeline> timelines) {
  check_ranks(programs, timelines);
  nlohmann::json events = nlohmann::json::array();
  for (std::size_t i = 0; i < programs.size(); ++i) {
    const int rank = timelines[i].rank;
    events.push_back(
        {{"ph", "M"},
         {"name", "process_name"},
         {"pid", rank},
         {"args", {{"name", fmt::format("rank {} ({})", rank, origin(timelines[i]))}}}});
    for (int lane = 0; lane < kLanes; ++lane) {
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", rank},
                        {"tid", lane},
                        {"args", {{"name", name(static_cast<Lane>(lane))}}}});
    }
    for (std::size_t op = 0; op < programs[i].ops.size(); ++op) {
      const Op& it = programs[i].ops[op];
      const OpTime& time = timelines[i].ops[op];
      events.push_back(
          {{"ph", "X"},
           {"name", name(it.kind)},
           {"pid", rank},
           {"tid", static_cast<int>(it.lane)},
           {"ts", microseconds(time.start)},
           {"dur", microseconds(time.time())},
           {"args", {{"op", op}, {"chunk", it.chunk}, {"rows", it.rows}, {"bytes", it.bytes}}}});
    }
  }
  return json_text({{"traceEvents", events}, {"displayTimeUnit", "ms"}});
}

std::string to_text(const Program& program, const Timeline& timeline) {
  check_sizes(program, timeline);
  std::string text =
      fmt::format("{}: {:.3f} ms\n", origin(timeline), microseconds(timeline.total()) / 1e3);
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    text += fmt::format("{}: {:.3f} to {:.3f} ms\n", to_text(program, static_cast<int>(op)),
                        microseconds(timeline.ops[op].start) / 1e3,
                        microseconds(timeline.ops[op].end) / 1e3);
  }
  return text;
}

}  // namespace motley::moe
