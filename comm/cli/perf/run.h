// Measures the cells of a plan, one after the other: checks the result of one call, then times.
#pragma once

#include "comm/cli/perf/plan.h"
#include "comm/cli/perf/report.h"
#include "comm/cli/perf/subject.h"

namespace motley::perf {

// All ranks together, with the same plan. `report`: null but on rank 0.
void run(Subject& subject, const Plan& plan, const Clock& clock, Report* report);

}  // namespace motley::perf
