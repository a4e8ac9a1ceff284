// test/support/late_rank.h: four ranks in a ring, one of which does not come to the third call.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <vector>

#include "comm/communicator.h"
#include "comm/error.h"
#include "comm/local.h"

namespace motley::test {

// All make an all_reduce and a barrier; then all but `late` an all_reduce that fails, which
// `failed` is told on each of them. Nobody leaves before all have failed.
inline void run_with_a_late_rank(int late, Options options,
                                 const std::function<void(Communicator&, const Error&)>& failed) {
  constexpr int kRanks = 4;
  options.algorithm = "ring";
  std::promise<void> promise;
  const std::shared_future<void> all_failed = promise.get_future().share();
  std::atomic<int> failures = 0;
  run_local(
      kRanks,
      [&](Communicator& comm) {
        std::vector<float> data(1000, 1);
        comm.all_reduce(data, ReduceOp::kSum).wait();
        comm.barrier().wait();
        if (comm.rank() == late) return all_failed.wait();
        try {
          comm.all_reduce(data, ReduceOp::kSum).wait();
          ADD_FAILURE() << "rank " << comm.rank();
        } catch (const Error& error) {
          failed(comm, error);
        }
        if (++failures == kRanks - 1) promise.set_value();
        all_failed.wait();
      },
      options);
}

}  // namespace motley::test
