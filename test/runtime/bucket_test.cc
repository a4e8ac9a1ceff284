// Gradients are averaged in buckets, in one order on all workers, while others are still computed.
#include "runtime/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "comm/local.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using testing::Each;

std::vector<Shape> shapes_of(const std::vector<std::size_t>& counts) {
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < counts.size(); ++i)
    shapes.push_back({"p" + std::to_string(i), {counts[i]}});
  return shapes;
}

std::size_t first_of(const std::vector<std::size_t>& counts, std::size_t shape) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(shape),
                         std::size_t{0});
}

TEST(Buckets, AreCutBetweenShapesFromTheEnd) {
  run_local(1, [](Communicator& comm) {
    std::vector<float> gradients(100);
    // 40 bytes are 10 floats. From the end: 30; 5 + 20; 0 and 1 + 44 are what is left.
    Buckets buckets(comm, gradients, shapes_of({44, 1, 0, 20, 5, 30}), {.bytes = 40});
    EXPECT_EQ(buckets.count(), 3);
    buckets.ready(0, 100);
    buckets.wait();
    ASSERT_EQ(buckets.times().size(), 3u);
    EXPECT_EQ(buckets.times()[0].first, 70u);
    EXPECT_EQ(buckets.times()[1].first, 45u);
    EXPECT_EQ(buckets.times()[1].count, 25u);
    EXPECT_EQ(buckets.times()[2].first, 0u);
    EXPECT_EQ(buckets.times()[2].count, 45u);
  });
}

// Gradients are ready in another order on each worker, all values are integers, so sums are exact.
TEST(Buckets, GiveTheAverageWhateverIsReadyFirst) {
  const std::vector<std::size_t> counts = {13, 1, 700, 64, 3, 200, 31};
  const std::size_t n = first_of(counts, counts.size());
  for (const std::size_t bytes : {1u, 256u, 1u << 20}) {
    run_local(4, [&](Communicator& comm) {
      std::mt19937 random(static_cast<unsigned>(comm.rank()) + 17);
      std::vector<float> gradients(n);
      Buckets buckets(comm, gradients, shapes_of(counts), {.bytes = bytes});
      for (int step = 0; step < 5; ++step) {
        for (std::size_t i = 0; i < n; ++i)
          gradients[i] = static_cast<float>(i % 7 + 4 * static_cast<std::size_t>(comm.rank()));
        std::vector<std::size_t> order(counts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::shuffle(order.begin(), order.end(), random);
        for (const std::size_t shape : order) buckets.ready(first_of(counts, shape), counts[shape]);
        buckets.wait();
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(gradients[i], static_cast<float>(i % 7 + 6)) << "step " << step;
      }
    });
  }
}

TEST(Buckets, WeighWorkersByTheirShare) {
  run_local(3, [](Communicator& comm) {
    const double shares[] = {0.5, 0.25, 0.25};
    std::vector<double> gradients(10, 4 * (comm.rank() + 1));
    Buckets buckets(comm, gradients, shapes_of({10}), {});
    buckets.begin(shares[comm.rank()]);
    buckets.ready(0, 10);
    buckets.wait();
    EXPECT_THAT(gradients, Each(0.5 * 4 + 0.25 * 8 + 0.25 * 12));
  });
}

// No rank makes its second half ready before the average of the first is there.
TEST(Buckets, AreAveragedWhileOthersAreStillComputed) {
  run_local(2, [](Communicator& comm) {
    std::vector<float> gradients(1000, static_cast<float>(comm.rank()));
    Buckets buckets(comm, gradients, shapes_of({500, 500}), {.bytes = 4});
    buckets.ready(500, 500);
    const auto call = comm.recorder().last_started();
    ASSERT_TRUE(call.has_value());
    const TimePoint patience = comm.clock().now() + comm.options().timeout;
    const auto done = [&] {
      const auto last = comm.recorder().last_done();
      return last && last->number == call->number && last->group == call->group;
    };
    while (!done() && comm.clock().now() < patience) std::this_thread::yield();
    ASSERT_TRUE(done()) << "nobody but the communicator's own thread makes progress";
    buckets.ready(0, 500);
    buckets.wait();
    EXPECT_THAT(gradients, Each(0.5f));
    const auto& times = buckets.times();
    EXPECT_LE(times[0].begun, times[0].done);
    EXPECT_LE(times[0].done, times[1].begun);
  });
}

TEST(Buckets, SayWhatIsWrong) {
  run_local(1, [](Communicator& comm) {
    std::vector<float> gradients(30);
    test::expect_error(ErrorCode::kInvalid, {"30", "20"}, [&] {
      Buckets(comm, gradients, shapes_of({10, 10}), {});
    });
    Buckets buckets(comm, gradients, shapes_of({10, 20}), {.bytes = 4});
    test::expect_error(ErrorCode::kInvalid, {"ready(10, 10)"}, [&] { buckets.ready(10, 10); });
    test::expect_error(ErrorCode::kInvalid, {"ready(5, 5)"}, [&] { buckets.ready(5, 5); });
    test::expect_error(ErrorCode::kInvalid, {"ready(10, 40)"}, [&] { buckets.ready(10, 40); });
    buckets.ready(10, 20);
    test::expect_error(ErrorCode::kInvalid, {"ready(10, 20)"}, [&] { buckets.ready(10, 20); });
    test::expect_error(ErrorCode::kInvalid, {"10 gradients", "0 to 10"}, [&] { buckets.wait(); });
    buckets.ready(0, 30);  // a step anew
    buckets.wait();
  });
}

}  // namespace
}  // namespace motley::runtime
