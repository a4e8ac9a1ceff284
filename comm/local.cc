#include "comm/local.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/control/local_control.h"
#include "comm/error.h"
#include "comm/topology/settle.h"
#include "comm/transport/inproc.h"

namespace motley {

void run_local(int size, const std::function<void(Communicator&)>& body, const Options& options) {
  if (size < 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("run_local: {} ranks; at least 1 is needed.", size));
  }
  InprocNetwork network(size);
  LocalControl control(size);
  std::vector<Communicator> seats;
  for (int rank = 0; rank < size; ++rank) {
    Options mine = options;
    mine.rank = rank;
    mine.size = size;
    seats.emplace_back(network.transport(rank), control.connect(rank), Clock::real(), mine);
  }
  std::mutex mutex;
  std::exception_ptr first;
  const auto fail = [&](int rank, const std::string& why) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    control.report_lost(rank, why);
  };
  const std::vector<int> one_host(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator& seat = seats[static_cast<std::size_t>(rank)];
        if (options.topology != "auto") settle_topology(seat, one_host);
        body(seat);
      } catch (const std::exception& error) {
        fail(rank, fmt::format("its thread threw: {}", error.what()));
      } catch (...) {
        fail(rank, "its thread threw");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace motley
