// What the kernels of comm reach of the copy bandwidth of the memory they run on: the host's on one
// core, and the device's where there is one.
//
//   MB            bytes that the call reads and writes, each buffer counted once, in 10^6
//   us            median of the runs; on a device of batches of calls
//   GB/s          the quotient
//   of copy       share of the bandwidth of memcpy (host) or of a copy on the device in this run,
//                 which counts the bytes read and those written, too
//
// kernel_perf --mib 64 --device_mib 1024
#include <fmt/format.h>
#include <gflags/gflags.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "comm/clock.h"
#include "comm/convert.h"
#include "comm/device.h"
#include "comm/kernel/combine.h"
#include "comm/kernel/reduce.h"
#include "comm/quantize.h"
#include "comm/row_sums.h"
#include "comm/rows.h"

DEFINE_uint64(mib, 64, "size of each buffer in host memory, in MiB; small ones show caches");
DEFINE_uint64(device_mib, 1024, "size of each buffer in device memory, in MiB");

namespace motley {
namespace {

constexpr int kAreas = 6;  // the last is the index of rows
constexpr int kIndex = kAreas - 1;
constexpr int kOrder = 2, kOffsets = 3;  // of segments of rows

// Where a call works: buffers of the same size.
struct Place {
  std::size_t bytes = 0;  // of each
  std::byte* areas[kAreas] = {};
  Memory memory = Memory::kHost;
  StreamRef stream;
  RowCheck* rows = nullptr;  // on a device

  // Buffer `area` as elements, as many as float32 would be there, from the `first` on.
  View of(int area, DType dtype, std::size_t first = 0) const {
    return View(areas[area], bytes / sizeof(float) + first, dtype, memory)
        .slice(first, bytes / sizeof(float));
  }
};

struct Work {
  std::string name;
  DType dtype;
  double element_bytes;  // that are read and written for one element
  std::function<void(const Place&)> host;
  std::function<void(const Place&)> device;
};

Work copying() {
  return {"copy", DType::kFloat32, 8,
          [](const Place& p) { std::memcpy(p.areas[0], p.areas[1], p.bytes); },
          [](const Place& p) {
            motley::copy(p.of(0, DType::kFloat32), p.of(1, DType::kFloat32), p.stream);
          }};
}

// `first`: elements by which the second buffer is off.
Work reducing(DType dtype, std::size_t first = 0) {
  return {first == 0 ? "sum of 2" : "sum of 2, crooked", dtype, 3.0 * size_bytes(dtype),
          [=](const Place& p) {
            reduce(p.of(0, dtype), ConstView(p.of(1, dtype, first)).bytes(), ReduceOp::kSum);
          },
          [=](const Place& p) {
            reduce_on_device(p.of(0, dtype), p.of(1, dtype, first), ReduceOp::kSum, p.stream);
          }};
}

// Of four other buffers.
Work combining(DType dtype, ReduceOp op) {
  static constexpr double kWeights[] = {0.1, 0.2, 0.3, 0.4};
  return {fmt::format("{} of 4", name(op)), dtype, 5.0 * size_bytes(dtype),
          [=](const Place& p) {
            const std::byte* const sources[] = {p.areas[1], p.areas[2], p.areas[3], p.areas[4]};
            const View out = p.of(0, dtype);
            Combine(dtype, op)(out.data, sources, 4, out.count, kWeights);
          },
          [=](const Place& p) {
            const ConstView in[] = {p.of(1, dtype), p.of(2, dtype), p.of(3, dtype), p.of(4, dtype)};
            if (op == ReduceOp::kWeightedSum)
              weighted_sum_on_device(p.of(0, dtype), in, kWeights, p.stream);
            else
              combine_on_device(p.of(0, dtype), in, op, p.stream);
          }};
}

Work dividing(DType dtype) {
  return {"divide", dtype, 2.0 * size_bytes(dtype),
          [=](const Place& p) { divide(p.of(0, dtype), 3); },
          [=](const Place& p) { divide_on_device(p.of(0, dtype), 3, p.stream); }};
}

Work converting(DType to, DType from) {
  return {fmt::format("to {}", name(to)), from, 1.0 * (size_bytes(to) + size_bytes(from)),
          [=](const Place& p) { convert(p.of(0, to), p.of(1, from)); },
          [=](const Place& p) { convert_on_device(p.of(0, to), p.of(1, from), p.stream); }};
}

constexpr int kBlock = 128;

Quantized quantized_of(const Place& p) {
  const View values = p.of(2, DType::kInt8);
  return {values, p.of(3, DType::kFloat32).slice(0, scale_count(values.count, kBlock)), kBlock};
}

Work quantizing(DType dtype) {
  return {"quantize", dtype, size_bytes(dtype) + 1 + 4.0 / kBlock,
          [=](const Place& p) { quantize(quantized_of(p), p.of(1, dtype)); },
          [=](const Place& p) { quantize_on_device(quantized_of(p), p.of(1, dtype), p.stream); }};
}

Work dequantizing(DType dtype) {
  return {"dequantize", dtype, size_bytes(dtype) + 1 + 4.0 / kBlock,
          [=](const Place& p) { dequantize(p.of(0, dtype), quantized_of(p)); },
          [=](const Place& p) { dequantize_on_device(p.of(0, dtype), quantized_of(p), p.stream); }};
}

// Rows of float32 in a random order, all of them.
std::size_t row_count(const Place& p, std::size_t columns) {
  return p.bytes / sizeof(float) / columns;
}

RowMove rows_of(const Place& p, std::size_t columns) {
  const std::size_t rows = row_count(p, columns), n = rows * columns;
  return {p.of(0, DType::kFloat32).slice(0, n), p.of(1, DType::kFloat32).slice(0, n),
          p.of(kIndex, DType::kInt32).slice(0, rows), columns};
}

std::vector<std::int32_t> shuffled(std::size_t rows) {
  std::vector<std::int32_t> index(rows);
  std::iota(index.begin(), index.end(), 0);
  std::shuffle(index.begin(), index.end(), std::mt19937(1));
  return index;
}

using Move = void (*)(const RowMove&);
using DeviceMove = void (*)(const RowMove&, RowCheck&, StreamRef);

Work moving(const char* what, std::size_t columns, Move on_host, DeviceMove on_device) {
  return {fmt::format("{} rows of {}", what, columns), DType::kFloat32,
          8 + 4.0 / static_cast<double>(columns),
          [=](const Place& p) { on_host(rows_of(p, columns)); },
          [=](const Place& p) { on_device(rows_of(p, columns), *p.rows, p.stream); }};
}

// As many rows, each added to one of as many; one after another or, on a device, by atomics.
Work adding(std::size_t columns) {
  return {
      fmt::format("scatter-add rows of {}", columns), DType::kFloat32,
      12 + 4.0 / static_cast<double>(columns),
      [=](const Place& p) { scatter_add_rows(rows_of(p, columns)); },
      [=](const Place& p) { scatter_add_rows_on_device(rows_of(p, columns), *p.rows, p.stream); }};
}

// The same by segments of one row each: `order` and `offsets` lie in two other buffers.
RowSegments segments_in(const Place& p, std::size_t columns) {
  const RowMove move = rows_of(p, columns);
  const std::size_t rows = row_count(p, columns);
  return {move.out, move.in, View(p.areas[kOrder], rows, DType::kInt64, p.memory),
          View(p.areas[kOffsets], rows + 1, DType::kInt64, p.memory), columns};
}

Work adding_segments(std::size_t columns) {
  return {fmt::format("segments of rows of {}", columns), DType::kFloat32,
          12 + 16.0 / static_cast<double>(columns),
          [=](const Place& p) { add_row_segments(segments_in(p, columns)); },
          [=](const Place& p) {
            add_row_segments_on_device(segments_in(p, columns), *p.rows, p.stream);
          }};
}

double seconds_of(const std::function<void()>& body) {
  const TimePoint start = Clock::real().now();
  body();
  return to_seconds(Clock::real().now() - start);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double host_seconds(const Work& work, const Place& place) {
  std::vector<double> times;
  work.host(place);  // once to warm up
  for (int run = 0; run < 9; ++run) times.push_back(seconds_of([&] { work.host(place); }));
  return median(times);
}

double device_seconds(const Work& work, const Place& place) {
  constexpr int kCalls = 20;
  const auto batch = [&] {
    for (int call = 0; call < kCalls; ++call) work.device(place);
    synchronize(place.stream);
  };
  batch();
  std::vector<double> times;
  for (int run = 0; run < 5; ++run) times.push_back(seconds_of(batch) / kCalls);
  return median(times);
}

class Table {
 public:
  explicit Table(const std::string& where) {
    fmt::print("{}\n{:<25} {:<9} {:>9} {:>11} {:>8} {:>8}\n", where, "kernel", "type", "MB", "us",
               "GB/s", "of copy");
  }

  void add(const Work& work, std::size_t n, double seconds) {
    const double bytes = work.element_bytes * static_cast<double>(n);
    const double speed = bytes / seconds;
    if (copy_speed_ == 0) copy_speed_ = speed;  // the first work is the copy
    fmt::print("{:<25} {:<9} {:>9.1f} {:>11.1f} {:>8.2f} {:>8.2f}\n", work.name, name(work.dtype),
               bytes * 1e-6, seconds * 1e6, speed * 1e-9, speed / copy_speed_);
  }

 private:
  double copy_speed_ = 0;
};

// All works on buffers that were filled; put(area, numbers) writes these into an area.
template <class Seconds, class Put>
void run_all(const std::string& where, const Place& place, const Seconds& seconds, const Put& put) {
  Table table(where);
  const auto add = [&](const Work& work) {
    table.add(work, place.bytes / sizeof(float), seconds(work, place));
  };
  add(copying());
  for (const DType dtype :
       {DType::kFloat32, DType::kInt32, DType::kBFloat16, DType::kFloat16, DType::kInt8}) {
    add(reducing(dtype));
    add(reducing(dtype, 1));
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    add(combining(dtype, ReduceOp::kSum));
    add(combining(dtype, ReduceOp::kAverage));
    add(combining(dtype, ReduceOp::kWeightedSum));
    add(dividing(dtype));
    add(quantizing(dtype));
    add(dequantizing(dtype));
  }
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    add(converting(dtype, DType::kFloat32));
    add(converting(DType::kFloat32, dtype));
  }
  for (const std::size_t columns : {1, 16, 64, 1024}) {
    const std::vector<std::int32_t> index = shuffled(row_count(place, columns));
    put(kIndex, index);
    add(moving("gather", columns, gather_rows, gather_rows_on_device));
    add(moving("scatter", columns, scatter_rows, scatter_rows_on_device));
    add(adding(columns));
    if (columns == 1) continue;  // numbers of 8 bytes for each row find no room
    const IndexSegments segments = segments_of(index, index.size());
    put(kOrder, segments.order);
    put(kOffsets, segments.offsets);
    add(adding_segments(columns));
  }
}

void on_host() {
  Place place{.bytes = FLAGS_mib << 20};
  std::vector<std::vector<float>> areas;
  for (int area = 0; area < kAreas; ++area) {
    areas.emplace_back(place.bytes / sizeof(float) + 1, 1.0f + static_cast<float>(area));
    place.areas[area] = reinterpret_cast<std::byte*>(areas.back().data());
  }
  run_all(fmt::format("host, one core, buffers of {} MiB", FLAGS_mib), place, host_seconds,
          [&]<class T>(int area, const std::vector<T>& numbers) {
            std::memcpy(place.areas[area], numbers.data(), numbers.size() * sizeof(T));
          });
}

void on_device() {
  if (device_count() == 0) {
    fmt::print("device: none here, or no CUDA in this build; not run\n");
    return;
  }
  const Stream stream;
  RowCheck rows(stream);
  Place place{.bytes = FLAGS_device_mib << 20, .memory = Memory::kDevice};
  place.stream = stream;
  place.rows = &rows;
  const std::vector<float> ones(place.bytes / sizeof(float) + 1, 1.0f);
  std::vector<DeviceBuffer> areas;
  for (int area = 0; area < kAreas; ++area) {
    areas.emplace_back(ones.size() * sizeof(float));
    const View all = areas.back().view(ones.size(), DType::kFloat32);
    place.areas[area] = all.data;
    motley::copy(all, ones, stream);
  }
  run_all(fmt::format("device, buffers of {} MiB", FLAGS_device_mib), place, device_seconds,
          [&]<class T>(int area, const std::vector<T>& numbers) {
            const View there(place.areas[area], numbers.size(), dtype_of<T>, Memory::kDevice);
            motley::copy(there, numbers, stream);
            synchronize(stream);
          });
  rows.fetch(stream);
  synchronize(stream);
  rows.verify();
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  motley::on_host();
  motley::on_device();
}
