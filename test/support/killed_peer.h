// test/support/killed_peer.h: a rank that is killed in the middle of its messages, on any transport
// of processes.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "test/support/forked_ranks.h"
#include "test/support/transports.h"

namespace motley::test {

using JoinThree = std::function<std::unique_ptr<Transport>(int rank, Store& store)>;

// What each of three ranks does. Rank 1 sends to rank 0 as fast as it can. Rank 0 takes `messages`
// of them, fills what rank 1 takes, hears that rank 1 is dead, and then has what was sent whole or
// not at all, and goes on with rank 2.
inline bool outlive_rank_1(int rank, Store& store, const JoinThree& join, std::size_t messages) {
  const auto transport = join(rank, store);
  const auto data = pattern(transport->max_message_bytes(), 1);
  NotingSink out, in, last;
  if (rank == 1) {
    while (true) {
      if (transport->post_send(0, tag_of(1), data, out, 0)) continue;
      run_until(*transport, [&] { return !std::exchange(out.sends, {}).empty(); });
    }
  }
  if (rank == 0) {
    const auto receive = [&](std::size_t n) {
      transport->post_recv(1, tag_of(1), in, 0);
      return run_until(*transport, [&] { return in.receives.size() >= n || !in.failures.empty(); });
    };
    for (std::size_t n = 1; n <= messages; ++n) receive(n);
    std::size_t waiting = 0;  // of as many as rank 1 keeps, and more
    for (int i = 0; i < 1000; ++i)
      waiting += transport->post_send(1, tag_of(2), data, out, 7) ? 0 : 1;
    store.set("kill", "now");
    store.get("killed", Clock::real().now() + kPatience);
    transport->report_lost(1, "killed by signal 9");
    for (std::size_t n = messages + 1; in.failures.empty(); ++n) {
      if (!receive(n)) return false;
    }
    const auto over = [&] { return out.failures.size() + out.sends.size() == waiting; };
    if (!run_until(*transport, over) || out.failures.empty()) return false;
    for (const auto& message : in.receives) {
      if (message.data != data) return false;
    }
  }
  const int other = 2 - rank;
  transport->post_recv(other, tag_of(3), last, 0);
  const bool sent = transport->post_send(other, tag_of(3), data, last, 1);
  return run_until(*transport,
                   [&] { return !last.receives.empty() && (sent || !last.sends.empty()); });
}

inline void expect_to_outlive_rank_1(const JoinThree& join, std::size_t messages) {
  ForkedRanks ranks(
      3, [&](int rank, Store& store) { return outlive_rank_1(rank, store, join, messages); });
  ranks.store().get("kill", Clock::real().now() + kPatience);
  ranks.kill(1);
  ranks.store().set("killed", "yes");
  EXPECT_TRUE(ranks.succeeded(0));
  EXPECT_TRUE(ranks.succeeded(2));
}

}  // namespace motley::test
