// test/wide/sharded_workers.h: sharded training by workers that are threads, and the same by one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

#include "comm/local.h"
#include "wide/defaults.h"
#include "wide/kernel/flow.h"
#include "wide/sharded_run.h"
#include "wide/train/settle.h"

namespace motley::wide::test {

inline constexpr std::size_t kBatch = 40;  // rows of a worker and step

inline double distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double sum = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    sum += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(sum / norm);
}

// Of the first worker that lives.
struct Learnt {
  std::vector<float> state;
  std::vector<EpochReport> reports;
  std::vector<int> workers;
};

struct Death : std::runtime_error {
  Death() : std::runtime_error("this worker dies, as it is told to") {}
};

// How far workers have come, which others wait for, but not for ever, so that no test hangs.
class Milestone {
 public:
  void reach(std::int64_t at) {
    const std::lock_guard lock(mutex_);
    at_ = std::max(at_, at);
    changed_.notify_all();
  }
  void advance() {
    const std::lock_guard lock(mutex_);
    ++at_;
    changed_.notify_all();
  }
  [[nodiscard]] bool await(std::int64_t at, Duration most = seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, most, [&] { return at_ >= at; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t at_ = -1;
};

// All workers train to the end. One that throws dies; its Death is nobody's failure.
inline Learnt sharded(int workers, const RowParts& train, const std::optional<Dataset>& validation,
                      const TrainOptions& options,
                      const std::function<ShardOptions(Communicator&)>& shards) {
  Learnt learnt;
  std::mutex mutex;
  const auto body = [&](Communicator& comm) {
    ShardedRun run(comm, train, validation, options, shards(comm));
    while (run.next_step()) continue;
    std::vector<float> state = run.gather_state();
    if (state.empty()) return;
    const std::lock_guard lock(mutex);
    learnt = {std::move(state), run.reports(), run.workers()};
  };
  try {
    run_local(workers, body);
  } catch (const Death&) {
  }
  return learnt;
}

inline TrainOptions fm_options() {
  return {.model = {.kind = ModelKind::kFm, .factors = 8}, .epochs = 2, .batch_rows = kBatch};
}

// What one worker learns by batches of `before` rows in `steps` steps, then of `after` rows.
inline std::vector<float> in_batches(const Dataset& data, const TrainOptions& given,
                                     std::size_t steps, std::size_t before, std::size_t after) {
  TrainOptions plain = given;
  plain.prior_factors = plain.average = 0;
  const TrainOptions options = settled(plain, data, false);
  ModelOptions of_model = options.model;
  of_model.initial_accumulator = options.initial_accumulator;
  Model model = Model::of(of_model, data);
  Samples samples = model.prepare(data);
  samples.reorder(shuffled(samples.rows(), options.seed));
  const auto flow = make_flow(model.options(), model.layout());
  std::size_t made = 0;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    const auto order = order_of_epoch(samples.rows(), epoch, options);
    for (std::size_t row = 0; row < order.size();) {
      const std::size_t n = std::min(made++ < steps ? before : after, order.size() - row);
      UpdateOptions update = update_options(options);
      update.batch_rows = std::max<std::size_t>(n, 2);
      flow->train(samples, std::span(order).subspan(row, n), update, model.weights());
      row += n;
    }
  }
  return {model.weights().begin(), model.weights().end()};
}

inline ShardOptions dying(Communicator& comm, int rank, std::int64_t step,
                          std::function<void(std::int64_t)> ShardOptions::*when, int copies = 2) {
  ShardOptions shards{.hot = 20, .copies = copies};
  if (comm.rank() == rank) {
    shards.*when = [step](std::int64_t now) {
      if (now == step) throw Death();
    };
  }
  return shards;
}

}  // namespace motley::wide::test
