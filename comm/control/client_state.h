// comm/control/client_state.h: what the threads of a ControlClient share.
#pragma once

#include <fmt/format.h>

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/client.h"
#include "comm/control/dump_maker.h"
#include "comm/control/peer_probe.h"

namespace motley {

struct ControlClient::State {
  State(const ClientConfig& config, TimePoint now) : core(config, now), dumps(core, config) {}

  void ask_peers(TimePoint now) {
    if (!probe || !core.admitted()) return;
    for (const int rank : probe->on_time(now, core.silence(now), core.lease())) {
      core.peer_silent(rank, fmt::format("neither it nor the controller answers, for {:.1f} s",
                                         to_seconds(core.silence(now))));
    }
    for (const int rank : probe->unreachable(now, core.lease())) {
      core.peer_silent(rank,
                       fmt::format("it cannot be reached from here, though it lives, says the "
                                   "controller: no answer for {:.1f} s",
                                   to_seconds(2 * core.lease())));
    }
  }

  std::mutex calls[kLanes];  // by Lane: one call at a time
  // The last group that is done here, until it is known to be committed. Guarded by mutex, as are
  // the next.
  GroupTag open;
  std::vector<int> open_members;
  std::optional<std::int64_t> announced;  // the step, until ready()
  std::optional<GroupTag> begun;          // the group in which it did, without an answer yet
  mutable std::mutex mutex;
  std::condition_variable changed;
  ClientCore core;                       // guarded by mutex
  DumpMaker dumps;                       // guarded by mutex
  std::unique_ptr<PeerProbe> probe;      // guarded by mutex
  std::vector<ClientCore::Loss> losses;  // guarded by mutex: all so far
  std::mutex delivery;                   // one thread tells of losses at a time, in order
  std::size_t delivered = 0;             // guarded by delivery
  std::function<void(int, const std::string&)> on_lost;  // guarded by delivery
  std::function<void(const GroupTag&, int)> on_dropped;  // guarded by delivery
  std::mutex telling;
  Recorder* recorder = nullptr;  // guarded by telling
};

}  // namespace motley
