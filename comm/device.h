// comm/device.h: devices, their memory, streams and events, as owners and borrowers.
//
//   Stream stream;
//   DeviceBuffer buffer(n * sizeof(float));
//   copy(buffer.view(n, DType::kFloat32), host, stream);  // in stream order
//   Event copied;
//   copied.record(stream);
//   while (!copied.done()) do_something_else();
//
// Owners belong to the device that is current in the thread that makes them (UseDevice), and may be
// used and destroyed on any thread. Work is only ever put into a stream that the caller names.
//   errors  kUnavailable in a build without CUDA; kIo with CUDA's own text, what was being done and
//           the numbers, where CUDA fails
#pragma once

#include <concepts>
#include <cstddef>

#include "comm/view.h"

namespace motley {

// Devices that this process can use: 0 without CUDA, without a driver, without a device.
int device_count() noexcept;
// The device on which this thread makes owners and launches kernels.
int current_device();

// Makes `device` current in this thread until the end of the scope.
class UseDevice {
 public:
  explicit UseDevice(int device);
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;
  ~UseDevice();

 private:
  int before_;
};

// Bytes of the current device's memory.
struct DeviceMemory {
  std::size_t free = 0;
  std::size_t total = 0;
};
DeviceMemory device_memory();
// Bytes of shared memory that a block may ask for on the current device.
std::size_t device_shared_bytes();

// Where the memory at `data` lies. Memory that CUDA does not know is the host's.
Memory memory_of(const void* data);

// A borrowed cudaStream_t; null is the default stream.
struct StreamRef {
  void* handle = nullptr;
  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

// A stream, owned; it does not wait for the default stream, nor that for it.
class Stream {
 public:
  Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();  // what is in it goes on to its end

  operator StreamRef() const noexcept { return {handle_}; }  // NOLINT: a borrower of it

 private:
  void* handle_ = nullptr;
};

// Waits, without a deadline, until everything in `stream` is done: for programs and tests. Where
// that may take for ever, record an event and look at it.
void synchronize(StreamRef stream);

// A place in a stream. Cheap to look at; keeps no time.
class Event {
 public:
  Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  ~Event();

  // Marks what is in `stream` so far; again, to mark another place.
  void record(StreamRef stream);
  // Whether all that was marked is done; true if nothing ever was. Throws what went wrong in it.
  bool done() const;
  // What is put into `stream` from now on waits for what was marked.
  void hold(StreamRef stream) const;

 private:
  void* handle_ = nullptr;
};

// Device memory, owned.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t size_bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&&) = delete;
  ~DeviceBuffer();  // waits for the device, if it has bytes

  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // The first `count` elements.
  View view(std::size_t count, DType dtype) const noexcept {
    return {static_cast<std::byte*>(data_), count, dtype, Memory::kDevice};
  }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Host memory that devices copy from and to at full speed, while the host goes on.
class PinnedBuffer {
 public:
  PinnedBuffer() noexcept = default;
  explicit PinnedBuffer(std::size_t size_bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }
  std::size_t size_bytes() const noexcept { return size_bytes_; }
  // The first `count` elements.
  View view(std::size_t count, DType dtype) const noexcept { return {data(), count, dtype}; }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Copies in.size_bytes() bytes between any two memories, in stream order. Same size on both sides.
// Host memory must stay until then; where it is not pinned, the host may wait.
void copy(View out, ConstView in, StreamRef stream);
// Of two Views, for which std::copy would be found and fit better.
template <class Place>
requires std::convertible_to<const Place&, StreamRef>
void copy(View out, View in, const Place& stream) { copy(out, ConstView(in), StreamRef(stream)); }

}  // namespace motley
