// comm/transport/factory.h: makes the transports that join processes.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/clock.h"
#include "comm/control/awaited_peers.h"
#include "comm/options.h"
#include "comm/store.h"
#include "comm/transport/transport.h"

namespace motley {

// The network between hosts.
struct DataNetwork {
  std::string device;   // empty: all that there are
  std::string address;  // of this rank
  bool v6 = false;
};

// What a transport needs in order to find its peers. Ranks may be processes or threads of one
// process.
struct TransportSetup {
  int rank = 0;
  int size = 1;
  Store& store;      // addresses are exchanged under keys that start with `name`
  std::string name;  // distinguishes several sets of transports in one store, e.g. "world"
  Clock& clock;
  const Options& options;
  TimePoint deadline;  // until when peers are waited for; then kTimeout, naming the missing
  std::vector<int> members =
      {};  // the ranks to be joined, ascending, this one among them; empty: all
  std::vector<int> hosts = {};  // the number of each rank's host, where there are several
  DataNetwork network = {};     // for ucx
  std::shared_ptr<AwaitedPeers> awaited = {};  // if set: is told whom on other hosts we wait for
  std::function<void()> check = {};  // if set: throws once waiting for peers has become hopeless

  // How many ranks are joined, this one among them.
  int joined() const noexcept { return members.empty() ? size : static_cast<int>(members.size()); }
  bool joins(int other) const noexcept {
    return members.empty() || std::binary_search(members.begin(), members.end(), other);
  }
};

// Processes (or threads) of one host, through shared memory.
std::unique_ptr<Transport> make_shm_transport(const TransportSetup& setup);
// Any hosts, through UCX. Throws kUnavailable where UCX is not in this build.
std::unique_ptr<Transport> make_ucx_transport(const TransportSetup& setup);

}  // namespace motley
