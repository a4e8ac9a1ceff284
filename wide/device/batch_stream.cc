#include "wide/device/batch_stream.h"

#include <chrono>
#include <thread>

#include "comm/clock.h"
#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr std::chrono::minutes kLongest{10};

// Batches take milliseconds: what lasts so long will not end.
void await(const Event& event, const char* what) {
  const TimePoint deadline = Clock::real().now() + kLongest;
  while (!event.done()) {
    if (Clock::real().now() > deadline) {
      throw Error(ErrorCode::kTimeout, std::string("train on a device: ") + what +
                                           " took more than 10 minutes. Is the device stuck?");
    }
    std::this_thread::yield();
  }
}

}  // namespace

const std::byte* BatchStream::send(BatchMaker& maker, std::span<const std::uint64_t> rows,
                                   Place& place) {
  const std::size_t bytes = maker.make(rows);  // while the device works
  await(place.copied, "the copy of a batch");
  if (place.host.size_bytes() < bytes) {
    const std::size_t room = bytes + bytes / 4;  // the next batch may have somewhat more
    await(place.used, "a batch");
    place.host = PinnedBuffer(room);
    place.device.reset();
    place.device.emplace(room);
  }
  maker.write(place.host.data());
  place.used.hold(copies_);
  const View device = place.device->view(bytes, DType::kInt8);
  copy(device, place.host.view(bytes, DType::kInt8), copies_);
  place.copied.record(copies_);
  place.copied.hold(work_);
  return device.data;
}

void BatchStream::finish() {
  Event end;
  end.record(work_);
  await(end, "what was put into its stream");
}

}  // namespace motley::wide
