// comm/topology/processor_share.h: how much of a machine's processors a cgroup may use.
#pragma once

#include <functional>
#include <string>

namespace motley {

// Processors' worth of time per time that the cgroups named in `cgroups` (/proc/self/cgroup) and
// those above them allow; infinite if they set no quota. Versions 1 and 2. `read` gives a file's
// text, empty if there is none.
double processor_share(const std::string& cgroups,
                       const std::function<std::string(const std::string&)>& read);

}  // namespace motley
