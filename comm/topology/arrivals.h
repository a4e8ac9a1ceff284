// comm/topology/arrivals.h: what times that others may have disturbed say.
#pragma once

#include <vector>

#include "comm/clock.h"

namespace motley {

// The lower one of two in the middle; 0 if there is none.
double median(std::vector<double> values);

// ns between two arrivals of a stream that began at `start`, four or more. A rank that loses its
// core for a while finds all that came meanwhile at once, the last of it just now: that one has the
// right time. What limits rates lets some bytes pass at once, so the first third does not count.
// The median of what pairs of the others say; the mean of all where all were found at once.
double time_between(const std::vector<TimePoint>& arrivals, TimePoint start);

}  // namespace motley
