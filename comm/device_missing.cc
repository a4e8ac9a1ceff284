// comm/device.h in a build without CUDA.
#include "comm/convert.h"
#include "comm/device.h"
#include "comm/error.h"
#include "comm/kernel/combine.h"
#include "comm/kernel/reduce.h"
#include "comm/quantize.h"
#include "comm/row_sums.h"
#include "comm/rows.h"
#include "comm/weighted_rows.h"

namespace motley {
namespace {

[[noreturn]] void unavailable() {
  throw Error(ErrorCode::kUnavailable,
              "CUDA is not in this build. Configure with -DMOTLEY_CUDA=ON, or use host memory.");
}

}  // namespace

int device_count() noexcept { return 0; }
int current_device() { unavailable(); }
UseDevice::UseDevice(int) : before_(0) { unavailable(); }
UseDevice::~UseDevice() = default;
DeviceMemory device_memory() { unavailable(); }
std::size_t device_shared_bytes() { unavailable(); }
Memory memory_of(const void*) { return Memory::kHost; }

Stream::Stream() { unavailable(); }
Stream::~Stream() = default;
void synchronize(StreamRef) { unavailable(); }

Event::Event() { unavailable(); }
Event::~Event() = default;
void Event::record(StreamRef) { unavailable(); }
bool Event::done() const { unavailable(); }
void Event::hold(StreamRef) const { unavailable(); }

DeviceBuffer::DeviceBuffer(std::size_t) { unavailable(); }
DeviceBuffer::~DeviceBuffer() = default;
PinnedBuffer::PinnedBuffer(std::size_t) { unavailable(); }
PinnedBuffer::~PinnedBuffer() = default;
void copy(View, ConstView, StreamRef) { unavailable(); }

void combine_on_device(View, std::span<const ConstView>, ReduceOp, StreamRef) { unavailable(); }
void weighted_sum_on_device(View, std::span<const ConstView>, std::span<const double>, StreamRef) {
  unavailable();
}
void convert_on_device(View, ConstView, StreamRef, double) { unavailable(); }
void reduce_on_device(View, ConstView, ReduceOp, StreamRef) { unavailable(); }
void divide_on_device(View, int, StreamRef) { unavailable(); }
void quantize_on_device(const Quantized&, ConstView, StreamRef) { unavailable(); }
void dequantize_on_device(View, const Quantized&, StreamRef) { unavailable(); }
void gather_rows_on_device(const RowMove&, RowCheck&, StreamRef) { unavailable(); }
void scatter_rows_on_device(const RowMove&, RowCheck&, StreamRef) { unavailable(); }
void scatter_add_rows_on_device(const RowMove&, RowCheck&, StreamRef) { unavailable(); }
void add_row_segments_on_device(const RowSegments&, RowCheck&, StreamRef) { unavailable(); }
void gather_scaled_rows_on_device(const ScaledRows&, RowCheck&, StreamRef) { unavailable(); }
void sum_weighted_rows_on_device(const WeightedRowSums&, RowCheck&, StreamRef) { unavailable(); }
void multiply_rows_on_device(const RowProducts&, RowCheck&, StreamRef) { unavailable(); }

}  // namespace motley
