#include "test/support/device_emulated.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>
#include <utility>

#include "comm/error.h"
#include "test/support/device_world.h"

namespace motley {
namespace test {
namespace {

std::unique_ptr<DeviceWorld>& the_world() {
  static auto world = std::make_unique<DeviceWorld>(EmulatedDevices{});
  return world;
}

}  // namespace

DeviceWorld::DeviceWorld(const EmulatedDevices& settings_)
    : settings(settings_),
      streams(settings_.seed, {.begin = [this] { let_host_touch(true); },
                               .end = [this] { let_host_touch(false); }}) {
  let_host_touch(false);
  for (int device = 0; device < settings.count; ++device)
    default_queues_.push_back(streams.create(device));
}

DeviceWorld& DeviceWorld::get() { return *the_world(); }

int DeviceWorld::current() {
  const std::lock_guard lock(mutex_);
  const auto found = current_.find(std::this_thread::get_id());
  return found == current_.end() ? 0 : found->second;
}

void DeviceWorld::make_current(int device) {
  if (device < 0 || device >= settings.count) {
    throw Error(ErrorCode::kIo, fmt::format("CUDA: invalid device ordinal (101) while choosing "
                                            "device {}; there are {}.",
                                            device, settings.count));
  }
  const std::lock_guard lock(mutex_);
  if (device == 0) {
    current_.erase(std::this_thread::get_id());
  } else {
    current_[std::this_thread::get_id()] = device;
  }
}

const DeviceWorld::Queue& DeviceWorld::queue(StreamRef stream) {
  if (stream.handle != nullptr) return *static_cast<Queue*>(stream.handle);
  return default_queues_.at(static_cast<std::size_t>(current()));
}

void DeviceWorld::let_host_touch(bool allowed) {
  if (settings.host_access == HostAccess::kForbidden) heap.set_access(allowed);
}

DeviceUse device_use() {
  DeviceWorld& world = DeviceWorld::get();
  return {.streams = world.streams_alive,
          .events = world.events_alive,
          .device_bytes = world.heap.used_bytes(DeviceHeap::Kind::kDevice, -1),
          .pinned_bytes = world.heap.used_bytes(DeviceHeap::Kind::kPinned, -1),
          .unfinished = world.streams.unfinished()};
}

void emulate(const EmulatedDevices& devices) {
  assert(device_use() == DeviceUse{});
  the_world() = std::make_unique<DeviceWorld>(devices);
}

void enqueue(StreamRef stream, std::function<bool()> work) {
  DeviceWorld& world = DeviceWorld::get();
  world.streams.enqueue(world.queue(stream), std::move(work));
}

}  // namespace test

namespace {

using test::DeviceHeap;
using test::DeviceWorld;
using Place = test::DeviceStreams::Place;

DeviceWorld& world() { return DeviceWorld::get(); }

// Throws as CUDA does, if [data, data + bytes) begins in a block but leaves it.
void check_inside(const void* data, std::size_t bytes) {
  const auto block = world().heap.find(data);
  if (!block) return;
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(data) - block->data);
  if (offset + bytes <= block->size_bytes) return;
  throw Error(
      ErrorCode::kIo,
      fmt::format("CUDA: invalid argument (1) while copying {} bytes at byte {} of a buffer "
                  "of {} bytes.",
                  bytes, offset, block->size_bytes));
}

void* allocate(std::size_t size_bytes, DeviceHeap::Kind kind) {
  DeviceWorld& in = world();
  const int device = in.current();
  const bool on_device = kind == DeviceHeap::Kind::kDevice;
  const std::size_t limit = on_device ? in.settings.memory_bytes : std::size_t(-1) / 2;
  void* const data = in.heap.allocate(size_bytes, kind, device, limit);
  if (data == nullptr) {
    const DeviceMemory memory = device_memory();
    throw Error(ErrorCode::kIo,
                fmt::format("CUDA: out of memory (2) while allocating {} bytes; {} of {} bytes are "
                            "free on the device.",
                            size_bytes, memory.free, memory.total));
  }
  return data;
}

}  // namespace

int device_count() noexcept { return world().settings.count; }
int current_device() { return world().current(); }

UseDevice::UseDevice(int device) : before_(current_device()) {
  if (device != before_) world().make_current(device);
}
UseDevice::~UseDevice() { world().make_current(before_); }

DeviceMemory device_memory() {
  DeviceWorld& in = world();
  const std::size_t total = in.settings.memory_bytes;
  return {.free = total - in.heap.used_bytes(DeviceHeap::Kind::kDevice, in.current()),
          .total = total};
}

Memory memory_of(const void* data) {
  const auto block = world().heap.find(data);
  return block && block->kind == DeviceHeap::Kind::kDevice ? Memory::kDevice : Memory::kHost;
}

Stream::Stream()
    : handle_(std::make_unique<DeviceWorld::Queue>(world().streams.create(current_device()))
                  .release()) {
  ++world().streams_alive;
}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  const std::unique_ptr<DeviceWorld::Queue> queue(static_cast<DeviceWorld::Queue*>(handle_));
  --world().streams_alive;
}

void synchronize(StreamRef stream) {
  world().streams.wait(world().streams.end_of(world().queue(stream)));
}

Event::Event() : handle_(std::make_unique<Place>().release()) { ++world().events_alive; }

Event::~Event() {
  if (handle_ == nullptr) return;
  const std::unique_ptr<Place> place(static_cast<Place*>(handle_));
  --world().events_alive;
}

void Event::record(StreamRef stream) {
  *static_cast<Place*>(handle_) = world().streams.end_of(world().queue(stream));
}

bool Event::done() const { return world().streams.look(*static_cast<const Place*>(handle_)); }

void Event::hold(StreamRef stream) const {
  world().streams.hold(world().queue(stream), *static_cast<const Place*>(handle_));
}

DeviceBuffer::DeviceBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes != 0) data_ = allocate(size_bytes, DeviceHeap::Kind::kDevice);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ == nullptr) return;
  if (const auto block = world().heap.find(data_)) world().streams.wait_for_device(block->device);
  world().heap.release(data_);
}

PinnedBuffer::PinnedBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes != 0) data_ = allocate(size_bytes, DeviceHeap::Kind::kPinned);
}

// Work on it that nobody waited for is then a segmentation fault.
PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) world().heap.release(data_);
}

void copy(View out, ConstView in, StreamRef stream) {
  assert(out.size_bytes() == in.size_bytes());
  if (in.count == 0) return;
  check_inside(out.data, out.size_bytes());
  check_inside(in.data, in.size_bytes());
  const test::CopyOrder::Copy what{out.data, in.data, in.size_bytes()};
  world().streams.enqueue(
      world().queue(stream),
      [what, to = out.data] {
        std::memmove(to, what.from, what.bytes);
        return true;
      },
      what);
}

}  // namespace motley
