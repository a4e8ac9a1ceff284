// Every sample is counted exactly once an epoch: by workers in step on any number of workers, and
// by workers of any speed that come and go; saved in the middle and gone on with on another number.
#include "runtime/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "comm/local.h"
#include "runtime/permutation.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::Each;
using testing::ElementsAre;

TEST(Permutation, MeetsEveryNumberOnce) {
  for (std::int64_t n = 1; n <= 300; ++n) {
    const Permutation order(n, static_cast<std::uint64_t>(n) * 3);
    std::vector<int> times(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i) ++times.at(static_cast<std::size_t>(order(i)));
    ASSERT_THAT(times, Each(1)) << n;
  }
}

TEST(Permutation, OfManyStaysInRangeAndMeetsNoneTwice) {
  constexpr std::int64_t kMany = 1'000'000'000'039;
  const Permutation order(kMany, 1);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 20'000; ++i) {
    const std::int64_t sample = order(i * 50'000'000);
    ASSERT_TRUE(sample >= 0 && sample < kMany);
    seen.insert(sample);
  }
  EXPECT_EQ(seen.size(), 20'000u);
  const auto below = std::distance(seen.begin(), seen.lower_bound(kMany / 2));
  EXPECT_NEAR(static_cast<double>(below), 10'000, 400) << "half of them in each half: 5 sigma";
}

std::vector<std::int64_t> first_of(std::int64_t count, std::uint64_t seed) {
  const Permutation order(count, seed);
  return {order(0), order(1), order(2), order(3), order(4)};
}

TEST(Permutation, IsAnotherForAnotherSeed) {
  EXPECT_NE(first_of(1000, 7), first_of(1000, 8));
  EXPECT_EQ(first_of(1000, 7), first_of(1000, 7));
}

using Counts = std::vector<int>;

// How often `workers` in step meet each of `samples` in epochs [0, epochs).
Counts meetings(int workers, std::int64_t samples, std::int64_t batch, int epochs) {
  Counts times(static_cast<std::size_t>(samples));
  for (int rank = 0; rank < workers; ++rank) {
    GlobalBatches batches(rank, workers, {.samples = samples, .batch = batch, .seed = 3});
    while (batches.epoch() < epochs) {
      for (const std::int64_t sample : batches.next().samples) {
        ++times.at(static_cast<std::size_t>(sample));
      }
    }
  }
  return times;
}

TEST(GlobalBatches, CountEverySampleOnceAnEpoch) {
  // 1,797: no batch divides it. 5: fewer than workers. Batch 4,000: more than samples.
  for (const int workers : {1, 3, 8}) {
    for (const std::int64_t samples : {1, 5, 1797}) {
      for (const std::int64_t batch : {1, 64, 4000}) {
        EXPECT_THAT(meetings(workers, samples, batch, 3), Each(3))
            << workers << " workers, " << samples << " samples, batch " << batch;
      }
    }
  }
}

// The samples of the next global batch, whoever has them.
std::vector<std::int64_t> global_batch(std::vector<GlobalBatches>& workers) {
  std::vector<std::int64_t> all;
  double shares = 0;
  for (GlobalBatches& each : workers) {
    const auto part = each.next();
    all.insert(all.end(), part.samples.begin(), part.samples.end());
    shares += part.share;
    EXPECT_DOUBLE_EQ(part.share * static_cast<double>(part.batch),
                     static_cast<double>(part.samples.size()));
  }
  EXPECT_DOUBLE_EQ(shares, 1);
  return all;
}

std::vector<GlobalBatches> workers_in_step(int size) {
  std::vector<GlobalBatches> workers;
  for (int rank = 0; rank < size; ++rank)
    workers.emplace_back(rank, size, GlobalBatchOptions{.samples = 100, .batch = 24, .seed = 9});
  return workers;
}

TEST(GlobalBatches, GoOnWithTheSameBatchOnAnotherNumberOfWorkers) {
  std::vector<GlobalBatches> eight = workers_in_step(8);
  for (int i = 0; i < 6; ++i) global_batch(eight);
  State saved;
  eight.front().list(saved);
  const auto counted = saved.find("samples counted").data.as<std::int64_t>()[0];
  EXPECT_EQ(counted, 100 + 24);
  const std::vector<std::int64_t> expected = global_batch(eight);
  for (const int size : {1, 3, 8}) {
    std::vector<GlobalBatches> resumed = workers_in_step(size);
    for (GlobalBatches& each : resumed) {
      State state;
      each.list(state);
      state.find("samples counted").data.as<std::int64_t>()[0] = counted;
    }
    EXPECT_EQ(global_batch(resumed), expected) << size << " workers";
  }
}

// The micro-batches of the first few batches, by number, from so many workers.
std::vector<std::vector<std::int64_t>> micro_batches(int workers) {
  constexpr std::size_t kPieces = 6, kBatches = 5;  // the last of an epoch is of 4 samples
  std::vector<std::vector<std::int64_t>> pieces(kPieces * kBatches);
  for (int rank = 0; rank < workers; ++rank) {
    GlobalBatches batches(rank, workers,
                          {.samples = 100, .batch = 24, .seed = 9, .micro_batches = kPieces});
    for (std::size_t batch = 0; batch < kBatches; ++batch) {
      const GlobalBatches::Part part = batches.next();
      EXPECT_EQ(part.sizes.size(), kPieces / static_cast<std::size_t>(workers));
      std::size_t first = 0, piece = batch * kPieces + static_cast<std::size_t>(rank);
      for (const std::int64_t size : part.sizes) {
        const auto samples = part.samples.subspan(first, static_cast<std::size_t>(size));
        pieces.at(piece).assign(samples.begin(), samples.end());
        first += samples.size();
        piece += static_cast<std::size_t>(workers);
      }
      EXPECT_EQ(first, part.samples.size());
    }
  }
  return pieces;
}

TEST(GlobalBatches, AreCutAlikeForAnyNumberOfWorkers) {
  const auto alone = micro_batches(1);
  std::vector<std::int64_t> epoch;
  for (std::size_t piece = 0; piece < alone.size(); ++piece) {
    EXPECT_LE(alone[piece].size(), 4u) << piece;
    epoch.insert(epoch.end(), alone[piece].begin(), alone[piece].end());
  }
  std::vector<GlobalBatches> one = workers_in_step(1);
  std::vector<std::int64_t> uncut;
  for (int i = 0; i < 5; ++i) {
    const auto batch = global_batch(one);
    uncut.insert(uncut.end(), batch.begin(), batch.end());
  }
  EXPECT_EQ(epoch, uncut);
  for (const int workers : {2, 3, 6}) EXPECT_EQ(micro_batches(workers), alone) << workers;
}

// A seed that was saved holds, whatever that of the options.
TEST(GlobalBatches, GoOnInTheOrderThatWasSaved) {
  GlobalBatches saved(0, 1, {.samples = 100, .batch = 24, .seed = ~std::uint64_t{9}});
  GlobalBatches resumed(0, 1, {.samples = 100, .batch = 24, .seed = 10});
  saved.next();
  State from, to;
  saved.list(from);
  resumed.list(to);
  for (const StateItem& item : from.items())
    to.find(item.name).data.as<std::int64_t>()[0] = item.data.as<std::int64_t>()[0];
  EXPECT_THAT(resumed.next().samples, testing::ElementsAreArray(saved.next().samples));
}

TEST(GlobalBatches, RefuseWhatMakesNoSense) {
  test::expect_error(ErrorCode::kInvalid, {"samples", "0"},
                     [] { GlobalBatches(0, 1, {.samples = 0, .batch = 1}); });
  test::expect_error(ErrorCode::kInvalid, {"batch", "-3"},
                     [] { GlobalBatches(0, 1, {.samples = 1, .batch = -3}); });
}

// Counts by epoch and sample, of all workers.
class Tally {
 public:
  Tally(int epochs, std::int64_t samples)
      : samples_(samples), times_(static_cast<std::size_t>(epochs * samples)) {}
  void add(std::int64_t epoch, std::span<const std::int64_t> samples) {
    for (const std::int64_t sample : samples)
      ++times_.at(static_cast<std::size_t>(epoch * samples_ + sample));
    total_ += static_cast<std::int64_t>(samples.size());
  }
  std::int64_t total() const { return total_; }
  std::vector<int> times() const { return {times_.begin(), times_.end()}; }

 private:
  std::int64_t samples_;
  std::vector<std::atomic<int>> times_;
  std::atomic<std::int64_t> total_{0};
};

// Four workers, which take 1, 4, 9 and 16 samples at a time. Rank 3 joins when a quarter of the
// first epoch is counted; rank 1 leaves with samples in hand when half of the second is.
TEST(SampleQueue, CountsEverySampleOnceThoughOneJoinsAndOneLeavesInTheMiddle) {
  constexpr std::int64_t kSamples = 1000;
  Tally tally(3, kSamples);
  std::atomic<bool> joined{false}, left{false};
  run_local(4, [&](Communicator& comm) {
    const std::int64_t most = (comm.rank() + 1) * (comm.rank() + 1);
    while (comm.rank() == 3 && tally.total() < kSamples / 4) std::this_thread::yield();
    SampleQueue queue(comm, {.samples = kSamples, .seed = 5, .claim = 50});
    if (comm.rank() == 3) joined = true;
    for (; queue.epoch() < 3; queue.next_epoch()) {
      for (auto samples = queue.next(most); !samples.empty(); samples = queue.next(most)) {
        if (comm.rank() == 1 && tally.total() > kSamples * 3 / 2) {
          left = true;
          return queue.leave();
        }
        tally.add(queue.epoch(), samples);
        queue.count();
        // The others wait for the one that joins, and then for the one that leaves.
        while (comm.rank() != 3 && tally.total() > kSamples / 2 && !joined)
          std::this_thread::yield();
        while (comm.rank() != 1 && tally.total() > kSamples * 7 / 4 && !left)
          std::this_thread::yield();
      }
    }
  });
  EXPECT_TRUE(joined && left);
  EXPECT_THAT(tally.times(), Each(1));
}

std::map<std::string, std::vector<std::int64_t>> copy_of(SampleQueue& queue) {
  State state;
  queue.list(state);
  std::map<std::string, std::vector<std::int64_t>> copy;
  for (const StateItem& item : state.items()) {
    const auto values = item.data.as<std::int64_t>();
    copy[item.name].assign(values.begin(), values.end());
  }
  return copy;
}

void restore(SampleQueue& queue, const std::map<std::string, std::vector<std::int64_t>>& copy) {
  State state;
  queue.list(state);
  for (const StateItem& item : state.items()) {
    std::copy(copy.at(item.name).begin(), copy.at(item.name).end(),
              item.data.as<std::int64_t>().begin());
  }
  queue.load_position();
}

TEST(SampleQueue, GoesOnWithWhatWasNotCountedOnAnotherNumberOfWorkers) {
  constexpr std::int64_t kSamples = 500;
  const SampleQueueOptions options{.samples = kSamples, .seed = 6, .claim = 40};
  Tally tally(2, kSamples);
  std::map<std::string, std::vector<std::int64_t>> saved;
  run_local(3, [&](Communicator& comm) {
    SampleQueue queue(comm, options);
    while (queue.epoch() == 0) {
      for (auto samples = queue.next(7); !samples.empty(); samples = queue.next(7)) {
        tally.add(0, samples);
        queue.count();
      }
      queue.next_epoch();
    }
    for (int part = 0; part < 5 + comm.rank(); ++part) {
      tally.add(1, queue.next(3));
      queue.count();
    }
    (void)queue.next(3);  // in hand, and not counted
    queue.save_position();
    if (comm.rank() == 0) saved = copy_of(queue);
  });
  EXPECT_EQ(tally.total(), kSamples + 3 * (5 + 6 + 7));
  run_local(2, [&](Communicator& comm) {
    SampleQueue queue(comm, options);
    restore(queue, saved);
    EXPECT_EQ(queue.epoch(), 1);
    for (auto samples = queue.next(11); !samples.empty(); samples = queue.next(11)) {
      tally.add(1, samples);
      queue.count();
    }
  });
  EXPECT_THAT(tally.times(), Each(1));
}

TEST(SampleQueue, RefusesToSkipSamples) {
  run_local(1, [](Communicator& comm) {
    test::expect_error(ErrorCode::kInvalid, {"samples", "0"}, [&] { SampleQueue(comm, {}); });
    SampleQueue queue(comm, {.samples = 10});
    (void)queue.next(4);
    test::expect_error(ErrorCode::kInvalid, {"4 samples", "epoch 0"}, [&] { queue.next_epoch(); });
    test::expect_error(ErrorCode::kInvalid, {"4"}, [&] { (void)queue.next(4); });
  });
}

}  // namespace
}  // namespace motley::runtime
