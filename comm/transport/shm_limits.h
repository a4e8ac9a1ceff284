// comm/transport/shm_limits.h: what ranks that share memory may use of the machine.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace motley {

// The cores that this process may run on, as a word: 1 or 0 for each from 0 on.
std::string allowed_cores();
// How many cores processes have together that may run on `allowed`, within the quota of our control
// groups, rounded up. At least 1.
int usable_cores(const std::vector<std::string>& allowed);

// How much of its memory a rank may let `ranks` ranks map: the machine's memory, less where limits
// on the process say so; 0 if that is too little to be of use. Address space only: pages come when
// they are used.
std::size_t usable_heap_bytes(int ranks);

}  // namespace motley
