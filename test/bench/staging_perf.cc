// How well calls on device memory overlap their copies with the rest: the time of a call on a
// device beside that of the same schedule on pinned host memory (the wire) and that of copying as
// many bytes from and to the device at once (the copy), all measured in the same run. Nothing can
// be faster than the longer of these two: `overlap` is that over the call's time.
//
//   staging_perf                           two ranks as threads
//   motley-run -n 2 -- staging_perf        as processes
//
// Says so and ends where there is no device.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>

#include "comm/cli/perf/motley_subject.h"
#include "comm/cli/perf/plan.h"
#include "comm/cli/perf/sampling.h"
#include "comm/communicator.h"
#include "comm/device.h"
#include "comm/local.h"

DEFINE_string(b, "1M", "smallest size in bytes");
DEFINE_string(e, "256M", "largest size in bytes");
DEFINE_string(algorithm, "direct", "of the all-reduces");
DEFINE_double(cap, 1, "seconds that each time may take");

namespace motley::perf {
namespace {

struct Times {
  double copy = 0;
  double wire = 0;
  double call = 0;
};

Times measure_size(Communicator& comm, std::size_t bytes) {
  MotleySubject subject(comm);
  const std::size_t n = bytes / sizeof(float);
  const DeviceBuffer in(bytes), out(bytes);
  const PinnedBuffer from(bytes), to(bytes);
  const auto view = [n](const auto& buffer) { return buffer.view(n, DType::kFloat32); };
  std::ranges::fill(view(from).bytes(), std::byte{});
  std::ranges::fill(view(to).bytes(), std::byte{});
  Stream to_host, to_device;
  motley::copy(view(in), view(from), to_device);
  synchronize(to_device);
  const SamplingRule rule{.cap = seconds(FLAGS_cap)};
  const auto time = [&](const Subject::Call& call) {
    return measure(subject, call, rule, comm.clock()).time;
  };
  const auto all_reduce = [&](ConstView given, View got) {
    return [&comm, given, got] {
      comm.all_reduce(given, got, ReduceOp::kSum, {.algorithm = FLAGS_algorithm}).wait();
    };
  };
  return {.copy = time([&] {
            motley::copy(view(from), view(in), to_host);
            motley::copy(view(out), view(to), to_device);
            synchronize(to_host);
            synchronize(to_device);
          }),
          .wire = time(all_reduce(view(from), view(to))),
          .call = time(all_reduce(view(in), view(out)))};
}

void run_rank(Communicator& comm) {
  const UseDevice device(comm.rank() % device_count());
  if (comm.rank() == 0) {
    fmt::print("all_reduce ({}), {} ranks, {} devices\n{:>8} {:>10} {:>10} {:>10} {:>8}\n",
               FLAGS_algorithm, comm.size(), device_count(), "size", "copy us", "wire us",
               "call us", "overlap");
  }
  for (const std::size_t bytes :
       size_range(parse_size("-b", FLAGS_b), parse_size("-e", FLAGS_e), 4)) {
    const Times times = measure_size(comm, bytes);
    if (comm.rank() != 0) continue;
    fmt::print("{:>8} {:>10.1f} {:>10.1f} {:>10.1f} {:>8.2f}\n", size_text(bytes), times.copy * 1e6,
               times.wire * 1e6, times.call * 1e6, std::max(times.copy, times.wire) / times.call);
  }
}

}  // namespace
}  // namespace motley::perf

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (motley::device_count() == 0) {
    fmt::print("staging_perf: skipped, as there is no device\n");
    return 0;
  }
  const motley::Options options = motley::Options::from_environment();
  if (options.size == 1) {
    motley::run_local(2, motley::perf::run_rank, options);
    return 0;
  }
  motley::Communicator comm = motley::Communicator::join(options);
  motley::perf::run_rank(comm);
  return 0;
}
