// wide/device/batch_stream.h: takes batches to a device while it works on the one before: laid out
// on the host, in one of two pinned buffers, and copied in a stream of their own.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "comm/device.h"
#include "wide/device/batch.h"

namespace motley::wide {

class BatchStream {
 public:
  StreamRef work() const noexcept { return work_; }

  // Calls body(batch, first) for rows[first, first + size) and so on: what it puts into work() runs
  // when the batch, which lies on the device, is there, and before its memory is used again.
  template <class Body>
  void for_batches(BatchMaker& maker, std::span<const std::uint64_t> rows, std::size_t size,
                   Body body) {
    for (std::size_t first = 0; first < rows.size(); first += size) {
      Place& place = places_[next_++ % places_.size()];
      const std::byte* const at =
          send(maker, rows.subspan(first, std::min(size, rows.size() - first)), place);
      body(maker.arrays(at), first);
      place.used.record(work_);
    }
  }

  // Returns when all that was put into work() is done.
  void finish();

 private:
  struct Place {
    PinnedBuffer host;
    std::optional<DeviceBuffer> device;
    Event copied;  // from `host`
    Event used;    // what is in `device`
  };
  // Lays out rows and has them copied; returns where.
  const std::byte* send(BatchMaker& maker, std::span<const std::uint64_t> rows, Place& place);

  Stream work_;
  Stream copies_;
  std::array<Place, 2> places_;
  std::size_t next_ = 0;
};

}  // namespace motley::wide
