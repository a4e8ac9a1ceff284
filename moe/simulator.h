// moe/simulator.h: programs in virtual time: what a layer would take, before it is run.
//
//   CostModel costs(Topology::hosts({0, 0, 1, 1}, {}));
//   const std::vector<Timeline> times = simulate(programs, costs);     // one program a rank
//   fmt::print("simulated: {} ms", to_seconds(makespan(times)) * 1e3);
//
// By the rules of program.h: lanes work beside each other, each does one operation at a time, which
// takes what the cost model says. An operation of all ranks begins on each when its lane takes it,
// and ends on all together, that long after the last has begun. Equal inputs give equal times.
#pragma once

#include <span>
#include <vector>

#include "moe/cost_model.h"
#include "moe/program.h"
#include "moe/timeline.h"

namespace motley::moe {

// Programs of ranks 0, 1, …: all that the cost model's topology has, alike but for sizes; or one,
// as if all ranks were like it. All of the timelines say that they are simulated.
//   errors  kInvalid as check() and check_alike(), and for another number of programs
std::vector<Timeline> simulate(std::span<const Program> programs, const CostModel& costs);
Timeline simulate(const Program& program, const CostModel& costs);

Duration makespan(std::span<const Timeline> timelines);
// No schedule ends sooner: the longest way through a program's operations, or the busiest lane.
Duration least_time(const Program& program, const CostModel& costs);

}  // namespace motley::moe
