#include "test/support/rank_runner.h"

#include <exception>
#include <mutex>
#include <thread>

#include "comm/error.h"
#include "comm/local.h"
#include "comm/transport/composite.h"
#include "comm/version.h"
#include "test/support/joined.h"
#include "test/support/memory_store.h"
#include "test/support/simulation.h"

namespace motley::test {
namespace {

// Ranks as threads over a transport that could join processes. The first error is thrown.
void run_threads(const TransportFactory& make, int size, const RankBody& body,
                 const Options& options) {
  MemoryStore store;
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator comm = joined(make, rank, size, store, options);
        body(comm);
        comm.barrier().wait();  // nobody leaves while another may still need its memory
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

// The first half of the ranks, or one more, on one host, the others on another.
std::unique_ptr<Transport> make_two_hosts(const TransportSetup& setup) {
  TransportSetup two_hosts = setup;
  for (int rank = 0; rank < setup.size; ++rank) {
    two_hosts.hosts.push_back(2 * rank < setup.size ? 0 : 1);
  }
  return make_composite_transport(two_hosts);
}

void run_fibers(int size, const RankBody& body, const Options& options) {
  run_simulated({.topology = Topology::uniform(size)},
                [&](int, std::unique_ptr<Transport> transport, Clock& clock) {
                  Communicator comm(std::move(transport), clock, options);
                  body(comm);
                });
}

}  // namespace

void run_ranks(int size, const RankBody& body, const Options& options) {
  run_local(size, body, options);
}

void run_ranks_on(const std::string& transport, int size, const RankBody& body,
                  const Options& options) {
  if (transport == "inproc") return run_ranks(size, body, options);
  if (transport == "shm") return run_threads(make_shm_transport, size, body, options);
  if (transport == "ucx") return run_threads(make_ucx_transport, size, body, options);
  if (transport == "ucx_staged") {
    Options staged = options;
    staged.ucx_device = "staged";
    return run_threads(make_ucx_transport, size, body, staged);
  }
  if (transport == "hosts") return run_threads(make_two_hosts, size, body, options);
  if (transport == "sim") return run_fibers(size, body, options);
  throw Error(ErrorCode::kInvalid, "run_ranks_on: there is no transport '" + transport + "'.");
}

std::vector<std::string> transports() {
  std::vector<std::string> names = {"inproc", "shm", "sim"};
  if (MOTLEY_HAS_UCX) names.emplace_back("ucx");
  return names;
}

bool ucx_is_built() { return MOTLEY_HAS_UCX; }

}  // namespace motley::test
