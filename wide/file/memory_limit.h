// wide/file/memory_limit.h: how much memory this process may use, to say so before it is killed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace motley::wide {

// That of the machine, or less, where a cgroup says so.
std::uint64_t memory_limit();
// The least limit on the way to the groups of `membership` (as /proc/self/cgroup has it), of those
// that lie in `root`; 0: there is none. Both versions of cgroups.
std::uint64_t cgroup_limit(const std::string& membership, const std::filesystem::path& root);
// In use, without what the system can read again from files.
std::uint64_t memory_in_use();

// Throws kInvalid, naming `what`, need and limit, where that many bytes are not left. `limit`: of
// this process.
void check_room(const std::string& what, double bytes, std::uint64_t limit,
                const std::string& advice);

}  // namespace motley::wide
