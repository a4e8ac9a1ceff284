// What strangers cost a running job: the rate of small all-reduces over UCX without and with a
// stranger that knows an address and a session but not the token and floods the rank with
// well-formed messages, 10,000 a second; in turns, and the messages refused. While it leaves the
// rank alone it floods a socket of its own as fast, and takes those messages out: otherwise the
// turns would differ by the processor time that flooding takes from the ranks.
//
//   rate    all-reduces of 4 B a second, 2 ranks as threads; median of 15 turns of half a second
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/transport/factory.h"
#include "comm/transport/ucx_header.h"
#include "comm/transport/ucx_worker.h"
#include "test/support/joined.h"
#include "test/support/memory_store.h"

namespace motley::test {
namespace {

constexpr int kTurns = 15;
constexpr Duration kTurn = seconds(0.5);
constexpr double kFlood = 10'000;  // messages a second

// Sends forged messages: to rank 0 while `on`, else to a socket of this thread. Returns how many
// came there.
std::uint64_t flood(const std::string& address, const std::atomic<bool>& on,
                    const std::atomic<bool>& stop) {
  std::uint64_t elsewhere = 0;
  UcxWorker decoy({.message = [&](ConstBytes) { ++elsewhere; }, .broken = {}}, {});
  UcxWorker stranger({.message = {}, .broken = {}}, {});
  stranger.connect(0, address.substr(17));
  stranger.connect(1, decoy.address());
  const UcxHeader header{.seal = 1,
                         .session = std::stoull(address.substr(0, 16), nullptr, 16),
                         .from = 1,
                         .kind = UcxHeader::Kind::kData};
  std::array<std::byte, UcxHeader::kBytes> bytes;
  header.write(bytes.data());
  Clock& clock = Clock::real();
  TimePoint next = clock.now();
  while (!stop) {
    stranger.progress();
    decoy.progress();
    stranger.send(on ? 0 : 1, bytes, bytes);
    next = std::max(next + seconds(1 / kFlood), clock.now() - seconds(0.01));
    clock.sleep_until(next);
  }
  return elsewhere;
}

double rate(Communicator& comm) {
  std::vector<std::int32_t> one(1, 1);
  const TimePoint start = comm.clock().now();
  int calls = 0;
  for (bool go_on = true; go_on; ++calls) {
    one[0] = comm.clock().now() - start < kTurn ? 1 : 0;
    comm.all_reduce(one, ReduceOp::kMin).wait();  // all stop after the same call
    go_on = one[0] == 1;
  }
  return calls / to_seconds(comm.clock().now() - start);
}

int run() {
  MemoryStore store;
  std::atomic<bool> on{false}, stop{false};
  std::vector<double> quiet, flooded;
  std::uint64_t refused = 0, elsewhere = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Options options;
      options.token = "the token";
      Communicator comm = test::joined(make_ucx_transport, rank, 2, store, options);
      for (int turn = 0; turn < 2 * kTurns; ++turn) {
        comm.barrier().wait();
        if (rank == 0) on = turn % 2 == 1;
        const double found = rate(comm);
        if (rank == 0) (turn % 2 == 1 ? flooded : quiet).push_back(found);
      }
      if (rank == 0) refused = comm.refused();
      comm.barrier().wait();
    });
  }
  threads.emplace_back([&] {
    const std::string key = fmt::format("{}/ucx/address/0", test::kJoinedAs);
    elsewhere = flood(store.get(key, Clock::real().now() + seconds(20)), on, stop);
  });
  threads[0].join();
  threads[1].join();
  stop = true;
  threads[2].join();
  std::ranges::sort(quiet);
  std::ranges::sort(flooded);
  const double without = quiet[kTurns / 2], with = flooded[kTurns / 2];
  fmt::print(
      "flooded elsewhere {:.0f}/s, here {:.0f}/s ({:+.1f} %), {} messages refused, {} elsewhere\n",
      without, with, 100 * (with / without - 1), refused, elsewhere);
  return refused > 0 && elsewhere > 0 ? 0 : 1;
}

}  // namespace
}  // namespace motley::test

int main() { return motley::test::run(); }
