// test/support/device_world.h: all there is of the emulated devices of this process.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>

#include "comm/device.h"
#include "test/support/device_emulated.h"
#include "test/support/device_heap.h"
#include "test/support/device_streams.h"

namespace motley::test {

class DeviceWorld {
 public:
  using Queue = std::shared_ptr<DeviceStreams::Queue>;

  explicit DeviceWorld(const EmulatedDevices& settings_);

  // The one that emulate() made last.
  static DeviceWorld& get();

  int current();  // of the calling thread
  void make_current(int device);
  // The queue behind a stream; of the default stream of the current device, if that is null.
  const Queue& queue(StreamRef stream);

  EmulatedDevices settings;
  DeviceHeap heap;
  DeviceStreams streams;
  std::atomic<std::size_t> streams_alive{0};
  std::atomic<std::size_t> events_alive{0};

 private:
  void let_host_touch(bool allowed);  // device memory, if the settings forbid it

  std::vector<Queue> default_queues_;
  std::mutex mutex_;
  std::unordered_map<std::thread::id, int> current_;  // of threads that use another than 0
};

}  // namespace motley::test
