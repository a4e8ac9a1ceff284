#include "comm/device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cassert>
#include <string>

#include "comm/error.h"

namespace motley {
namespace {

void check(cudaError_t status, const std::string& doing) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that was reported is not reported again by the next call
  throw Error(ErrorCode::kIo, fmt::format("CUDA: {} ({}) while {}.", cudaGetErrorString(status),
                                          static_cast<int>(status), doing));
}

cudaStream_t raw(StreamRef stream) noexcept { return static_cast<cudaStream_t>(stream.handle); }
cudaEvent_t raw_event(void* handle) noexcept { return static_cast<cudaEvent_t>(handle); }

std::string room() {
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) return "";
  return fmt::format("; {} of {} bytes are free on the device", free, total);
}

}  // namespace

int device_count() noexcept {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) cudaGetLastError();
  return status == cudaSuccess ? count : 0;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  return device;
}

UseDevice::UseDevice(int device) : before_(current_device()) {
  if (device != before_) check(cudaSetDevice(device), fmt::format("choosing device {}", device));
}

UseDevice::~UseDevice() { cudaSetDevice(before_); }

DeviceMemory device_memory() {
  DeviceMemory memory;
  check(cudaMemGetInfo(&memory.free, &memory.total), "asking for free memory");
  return memory;
}

std::size_t device_shared_bytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()),
        "asking how much shared memory a block may have");
  return static_cast<std::size_t>(bytes);
}

Memory memory_of(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "asking where memory lies");
  const bool on_device =
      attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  return on_device ? Memory::kDevice : Memory::kHost;
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  handle_ = stream;
}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(static_cast<cudaStream_t>(handle_));
}

void synchronize(StreamRef stream) {
  check(cudaStreamSynchronize(raw(stream)), "waiting for a stream");
}

Event::Event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  handle_ = event;
}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(raw_event(handle_));
}

void Event::record(StreamRef stream) {
  check(cudaEventRecord(raw_event(handle_), raw(stream)), "recording an event");
}

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(raw_event(handle_));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check(status, "running what an event waits for");
  return true;
}

void Event::hold(StreamRef stream) const {
  check(cudaStreamWaitEvent(raw(stream), raw_event(handle_), 0), "making a stream wait");
}

DeviceBuffer::DeviceBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  const cudaError_t status = cudaMalloc(&data_, size_bytes);
  if (status != cudaSuccess)
    check(status, fmt::format("allocating {} bytes{}", size_bytes, room()));
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

PinnedBuffer::PinnedBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  check(cudaHostAlloc(&data_, size_bytes, cudaHostAllocPortable),
        fmt::format("allocating {} bytes of pinned memory", size_bytes));
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

void copy(View out, ConstView in, StreamRef stream) {
  assert(out.size_bytes() == in.size_bytes());
  if (in.count == 0) return;
  check(cudaMemcpyAsync(out.data, in.data, in.size_bytes(), cudaMemcpyDefault, raw(stream)),
        fmt::format("copying {} bytes", in.size_bytes()));
}

}  // namespace motley
