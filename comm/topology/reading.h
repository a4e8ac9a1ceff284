// comm/topology/reading.h: what the probe measures of one link or one host.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "comm/topology/crowd.h"

namespace motley {

// All fields are 0 where nothing was measured, so that the ranks' readings can be added up.
struct LinkReading {
  double known = 0;        // 1 where it was measured
  double hop = 0;          // ns from starting a call until its one message has come, others at rest
  double tree = 0;         // within a host: ns of an all-reduce of all `ranks` along a tree
  double per_turn = 0;     // of ranks that share cores: ns (crowd.h)
  double per_message = 0;  // ns by which one more short message prolongs a call
  double bytes_per_second = 0;
};

struct HostReading {
  double call = 0;  // ns that a call without messages takes
  double reduce_bytes_per_second = 0;
  double copy_bytes_per_second = 0;
};

enum class Way { kWithinHost, kBetweenHosts };

// All of `ranks`, two or more, call it. A token goes round through all of them, then the first two
// exchange bursts; between hosts a stream follows, long enough that what a rate limit lets pass at
// once does not count. Each gets the fields that it measured; the others are 0. `epoch` is another
// one in every use.
LinkReading read_link(Communicator& comm, std::uint32_t epoch, const std::vector<int>& ranks,
                      Way way);
// All of `ranks` call it, all the ranks of a host: what all-reduces of theirs take, short ones and
// long ones of several families, at the first of them. 10 to 40 ms where they share cores.
std::vector<CallTime> read_calls(Communicator& comm, std::uint32_t epoch,
                                 const std::vector<int>& ranks);
// One rank of the host calls it.
HostReading read_host(Communicator& comm, std::uint32_t epoch);

}  // namespace motley
