// What the machine itself can do, measured beside the libraries.
#pragma once

#include <cstddef>

namespace motley::perf {

// Nanoseconds in which two cores each set a flag that the other sees: how near to each other two
// processes run. Virtual machines change it from one minute to the next, and times of small calls
// with it. 0 where there is but one core.
double exchange_ns();

// Bytes per second that each of `processes` copies of `bytes` reach, all copying at once: the
// better of plain and streaming stores. 0 if it could not be measured.
double copy_bandwidth(int processes, std::size_t bytes);

// The cores that this process may use.
int usable_cores();

}  // namespace motley::perf
