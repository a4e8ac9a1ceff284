// How much of averaging gradients hides behind the backward pass that computes them (bucket.h). The
// pass is emulated by sleeping, and takes as long as averaging all at once takes, measured in the
// same run: what could not be better hidden, nor more urgently. To be run as each rank:
//
//   hosts_perf --hosts 4 --slow "" -- overlap_perf      over links of 1 Gbit/s
//   motley-run -n 4 -- overlap_perf                     on one host
//
// The floor is the pass and the last bucket's average, which begins when the pass ends.
//
// The same of partial-reduce with all ranks in a group, which averages models in pieces
// (PartialOptions::piece_bytes) and hears from the controller in the meantime.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/partial_reduce.h"
#include "runtime/bucket.h"

DEFINE_int32(layers, 16, "layers of the model, all of one size");
DEFINE_double(mib, 8, "MiB of gradients");
DEFINE_double(bucket_kib, 512, "KiB of a bucket");
DEFINE_int32(steps, 15, "steps of which the median is told");

namespace motley::runtime {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The slowest rank's seconds of `body`, the same on all ranks.
template <class Body>
double time_of(Communicator& comm, Body&& body) {
  std::vector<double> times;
  for (int i = 0; i <= FLAGS_steps; ++i) {
    comm.barrier().wait();
    const TimePoint start = comm.clock().now();
    body();
    std::vector<double> slowest = {to_seconds(comm.clock().now() - start)};
    comm.all_reduce(slowest, ReduceOp::kMax).wait();
    if (i > 0) times.push_back(slowest[0]);
  }
  return median(times);
}

class Step {
 public:
  explicit Step(Communicator& comm)
      : layer_(static_cast<std::size_t>(FLAGS_mib * (1 << 20) / sizeof(float) / FLAGS_layers)),
        gradients_(layer_ * static_cast<std::size_t>(FLAGS_layers), 1),
        buckets_(comm, gradients_, shapes(),
                 {.bytes = static_cast<std::size_t>(FLAGS_bucket_kib * 1024)}) {}

  View gradients() { return gradients_; }
  const Buckets& buckets() const { return buckets_; }

  // A backward pass of so many seconds; `averages` while it goes on.
  void backward(double pass, bool averages) {
    const TimePoint start = Clock::real().now();
    for (int layer = FLAGS_layers; layer-- > 0;) {
      std::this_thread::sleep_until(start + seconds(pass * (FLAGS_layers - layer) / FLAGS_layers));
      if (averages) buckets_.ready(static_cast<std::size_t>(layer) * layer_, layer_);
    }
    if (averages) buckets_.wait();
  }

 private:
  std::vector<Shape> shapes() const {
    std::vector<Shape> shapes;
    for (int layer = 0; layer < FLAGS_layers; ++layer)
      shapes.push_back({fmt::format("layer{}", layer), {layer_}});
    return shapes;
  }

  std::size_t layer_;
  std::vector<float> gradients_;
  Buckets buckets_;
};

void print_timeline(const std::vector<BucketTimes>& times, double pass) {
  constexpr int kColumns = 60;
  double end = pass;
  for (const BucketTimes& bucket : times) end = std::max(end, to_seconds(bucket.done));
  const auto column = [&](double time) { return static_cast<int>(time / end * (kColumns - 1)); };
  fmt::print("{:>10} |{}\n", "backward", std::string(static_cast<std::size_t>(column(pass)), '='));
  for (const BucketTimes& bucket : times) {
    const int begun = column(to_seconds(bucket.begun));
    const int length = std::max(1, column(to_seconds(bucket.done)) - begun);
    fmt::print("{:>10} |{}{} {:.1f} to {:.1f} ms\n", bucket.first,
               std::string(static_cast<std::size_t>(begun), ' '),
               std::string(static_cast<std::size_t>(length), '#'), to_seconds(bucket.begun) * 1e3,
               to_seconds(bucket.done) * 1e3);
  }
}

void measure(Communicator& comm) {
  Step step(comm);
  const double average =
      time_of(comm, [&] { comm.all_reduce(step.gradients(), ReduceOp::kAverage).wait(); });
  const double pass = time_of(comm, [&] { step.backward(average, false); });
  const double one_by_one = time_of(comm, [&] {
    step.backward(average, false);
    comm.all_reduce(step.gradients(), ReduceOp::kAverage).wait();
  });
  const double overlapped = time_of(comm, [&] { step.backward(average, true); });
  if (comm.rank() != 0) return;
  fmt::print("{} ranks, {} MiB of gradients in {} buckets, medians of {} steps, in ms\n",
             comm.size(), FLAGS_mib, step.buckets().count(), FLAGS_steps);
  fmt::print(
      "backward alone {:.2f}, average alone {:.2f}, one after the other {:.2f}, overlapped "
      "{:.2f}: {:.2f} of backward alone\n",
      pass * 1e3, average * 1e3, one_by_one * 1e3, overlapped * 1e3, overlapped / pass);
  fmt::print("the last step, by first element of each bucket, since its first gradient:\n");
  print_timeline(step.buckets().times(),
                 pass * (FLAGS_layers - 1) / static_cast<double>(FLAGS_layers));
}

// Averages of a model in pieces while a pass goes on that takes as long as one of them alone.
void measure_partial(Communicator& comm) {
  const auto layers = static_cast<std::size_t>(FLAGS_layers);
  const auto layer = static_cast<std::size_t>(FLAGS_mib * (1 << 20) / sizeof(float)) / layers;
  std::vector<float> model(layers * layer, 1);
  PartialReducer reducer(comm, {.group_size = comm.size(),
                                .piece_bytes = static_cast<std::size_t>(FLAGS_bucket_kib * 1024)});
  std::int64_t step = 0;
  double seconds_of_pass = 0;
  const auto pass = [&](bool overlaps) {
    if (overlaps) reducer.begin(model, step);
    const TimePoint start = Clock::real().now();
    for (std::size_t i = layers; i-- > 0;) {
      std::this_thread::sleep_until(
          start +
          seconds(seconds_of_pass * static_cast<double>(layers - i) / static_cast<double>(layers)));
      if (overlaps) reducer.ready(i * layer, layer);
    }
    if (overlaps) reducer.finish();
    if (overlaps) ++step;
  };
  const auto average = [&] { reducer.average(model, step++); };
  seconds_of_pass = time_of(comm, average);
  const double alone = time_of(comm, [&] { pass(false); });
  const double one_by_one = time_of(comm, [&] {
    pass(false);
    average();
  });
  const double overlapped = time_of(comm, [&] { pass(true); });
  if (comm.rank() != 0) return;
  fmt::print("partial-reduce of {} ranks in pieces of {} KiB:\n", comm.size(), FLAGS_bucket_kib);
  fmt::print(
      "backward alone {:.2f}, average alone {:.2f}, one after the other {:.2f}, overlapped "
      "{:.2f}: {:.2f} of backward alone, {:.0f} % of the average hidden\n",
      alone * 1e3, seconds_of_pass * 1e3, one_by_one * 1e3, overlapped * 1e3, overlapped / alone,
      100 * (one_by_one - overlapped) / std::max(one_by_one - alone, 1e-9));
}

}  // namespace
}  // namespace motley::runtime

int main(int argc, char** argv) {
  gflags::SetUsageMessage("how much of averaging gradients hides behind the backward pass");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  try {
    motley::Communicator comm = motley::Communicator::join(motley::Options::from_environment());
    motley::runtime::measure(comm);
    motley::runtime::measure_partial(comm);
  } catch (const std::exception& error) {
    fmt::print(stderr, "overlap_perf: {}\n", error.what());
    return 1;
  }
}
