// Rows per second of the engine for devices, beside the CPU's and the classical schema in stages:
// resident (the batch lies on the device) and streamed (laid out and copied as training does).
//   wide_gpu_perf [-train FILE] [-rows N] [-seconds S]
// Needs a CUDA device; says so where there is none.
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <cstdio>
#include <numeric>
#include <vector>

#include "comm/clock.h"
#include "comm/error.h"
#include "test/bench/wide/bench_main.h"
#include "test/bench/wide_gpu/resident_batch.h"
#include "test/wide/skewed_rows.h"
#include "wide/device/engine.h"
#include "wide/reader.h"

DEFINE_string(train, "", "rows to train on; else skewed ones are made");
DEFINE_uint64(rows, 100'000, "rows to make");
DEFINE_uint64(batch, 8192, "rows of a resident batch, and of a deterministic update");
DEFINE_double(seconds, 2, "of each measurement");

namespace motley::wide {
namespace {

// Passes a second.
template <class Pass>
double rate_of(Pass pass) {
  pass();  // memory is touched, kernels are loaded
  const TimePoint begin = Clock::real().now();
  double seconds = 0;
  int passes = 0;
  for (; seconds < FLAGS_seconds; ++passes) {
    pass();
    seconds = std::chrono::duration<double>(Clock::real().now() - begin).count();
  }
  return passes / seconds;
}

// Bytes read and written a second by copies inside the device.
double bandwidth() {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const DeviceBuffer from(kBytes), to(kBytes);
  const Stream stream;
  return 2.0 * static_cast<double>(kBytes) * rate_of([&] {
           copy(to.view(kBytes, DType::kInt8), ConstView(from.view(kBytes, DType::kInt8)), stream);
           synchronize(stream);
         });
}

// Weights and what is beside them, read and written once, and the row itself.
double floor_bytes(const Model& model, const Samples& samples) {
  const Layout& l = model.layout();
  const double edges = static_cast<double>(samples.edges()) / static_cast<double>(samples.rows());
  const double numbers = static_cast<double>(l.planes * (l.width + 1));
  return edges * (2 * 4 * numbers + 4) + 5;
}

double streamed(const Samples& samples, Flow& flow, const Model& model, std::size_t batch_rows) {
  Floats state(model.weights().begin(), model.weights().end());
  std::vector<std::uint64_t> rows(samples.rows());
  std::iota(rows.begin(), rows.end(), std::uint64_t{0});
  return static_cast<double>(samples.rows()) * rate_of([&] {
           flow.train(samples, rows, {.l2 = 2e-5f, .batch_rows = batch_rows}, state);
         });
}

void measure(const ModelOptions& options, const Dataset& data, double bytes_a_second) {
  const Model model = Model::of(options, data);
  const Samples samples = model.prepare(data);
  const auto cpu = make_flow(model.options(), model.layout());
  const auto device = make_device_flow(model.options(), model.layout());
  const double on_cpu = streamed(samples, *cpu, model, 1);
  const double by_row = streamed(samples, *device, model, 1);
  const double by_batch = streamed(samples, *device, model, FLAGS_batch);
  std::vector<std::uint64_t> first(std::min<std::size_t>(FLAGS_batch, samples.rows()));
  std::iota(first.begin(), first.end(), std::uint64_t{0});
  const Dataset part = rows_of(data, first);
  const Samples few = model.prepare(part);
  ResidentBatch batch(model, few);
  const FlowShape shape = flow_shape(batch.job(), batch.arrays().rows);
  const auto rows = static_cast<double>(few.rows());
  const auto resident = [&](auto pass) {
    return rows * rate_of([&] {
             pass();
             synchronize(batch.stream());
           });
  };
  const double flow = resident([&] { batch.flow(shape); });
  const double exact = resident([&] { batch.by_batch(); });
  const double stages = resident([&] { batch.in_stages(); });
  const double share = flow * floor_bytes(model, samples) / bytes_a_second;
  fmt::print("{:4} {:2} {:10.0f} {:10.0f} {:10.0f} {:10.0f} {:10.0f} {:10.0f} {:8.2f}\n",
             name(options.kind), options.factors, on_cpu / 1e3, by_row / 1e3, by_batch / 1e3,
             flow / 1e3, exact / 1e3, stages / 1e3, share);
}

void run() {
  if (device_count() == 0) {
    std::puts("wide_gpu_perf: this process has no CUDA device, so there is nothing to measure.");
    return;
  }
  const Dataset data =
      FLAGS_train.empty()
          ? test::skewed_rows(
                {.rows = FLAGS_rows, .fields = 39, .features = 4, .growth = 1.28, .skew = 6})
          : read_file(FLAGS_train);
  const double bytes_a_second = bandwidth();
  fmt::print("{} rows, {} entries; copies in the device: {:.0f} GB/s\n", data.rows(),
             data.entries(), bytes_a_second / 1e9);
  std::puts(
      "Thousand rows a second; share: of that bandwidth, by the flow, were all weights read "
      "and written once.");
  fmt::print("{:7} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}\n", "", "cpu", "by row",
             "by batch", "flow", "exact", "stages", "share");
  measure({.kind = ModelKind::kLogistic, .factors = 1}, data, bytes_a_second);
  measure({.kind = ModelKind::kFm, .factors = 8}, data, bytes_a_second);
  measure({.kind = ModelKind::kFm, .factors = 16}, data, bytes_a_second);
  if (!data.fields.empty()) measure({.kind = ModelKind::kFfm, .factors = 4}, data, bytes_a_second);
}

}  // namespace
}  // namespace motley::wide

int main(int argc, char** argv) { return motley::wide::bench_main(argc, argv, motley::wide::run); }
