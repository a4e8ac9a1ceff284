// comm/algorithm/run_through.h: all ranks' schedules, event by event.
#pragma once

#include <vector>

#include "comm/algorithm/prices.h"
#include "comm/algorithm/schedule.h"
#include "comm/clock.h"

namespace motley {

// When the last rank has finished the first `pieces` pieces of a call, all ranks beginning at 0.
Duration run_through(const std::vector<Schedule>& schedules, const Prices& prices, int pieces);

}  // namespace motley
