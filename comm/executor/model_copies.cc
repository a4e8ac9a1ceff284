#include "comm/executor/model_copies.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "comm/error.h"
#include "comm/executor/engine.h"

namespace motley {

// Host copies of a model on a device, of the device that is current when it is made.
struct ModelCopies::Pinned {
  explicit Pinned(std::size_t bytes) : own(bytes), average(bytes) {}

  PinnedBuffer own;
  PinnedBuffer average;
  Stream copies;
  Event done;
};

ModelCopies::ModelCopies(Communicator& comm) : comm_(comm) {}
ModelCopies::~ModelCopies() = default;

ConstView ModelCopies::bring(View data, StreamRef stream, TimePoint deadline, View& last_average) {
  const Duration patience = deadline - comm_.clock().now();
  if (data.memory == Memory::kHost) return data;
  if (!pinned_ || pinned_->own.size_bytes() < data.size_bytes()) {
    auto larger = std::make_unique<Pinned>(data.size_bytes());
    if (last_average.count > 0) {  // others may still need it
      const View kept = larger->average.view(last_average.count, last_average.dtype);
      std::memcpy(kept.data, last_average.data, kept.size_bytes());
      last_average = kept;
    }
    pinned_ = std::move(larger);
  }
  const View own = pinned_->own.view(data.count, data.dtype);
  const auto wait = [&](const char* what) {
    if (comm_.engine().wait(pinned_->done, deadline)) return;
    throw Error(
        ErrorCode::kTimeout,
        fmt::format("partial_reduce: rank {} waited {:.1f} s for {} on the device. Raise the "
                    "timeout, or look at what the device does.",
                    comm_.rank(), to_seconds(patience), what));
  };
  pinned_->done.record(stream);
  wait("the work in its stream");
  motley::copy(own, data, pinned_->copies);
  pinned_->done.record(pinned_->copies);
  wait("a copy of the model");
  return own;
}

View ModelCopies::shadow_of(View data) {
  if (data.memory == Memory::kDevice) return pinned_->average.view(data.count, data.dtype);
  if (shadow_.size() < data.size_bytes()) shadow_.resize(data.size_bytes());
  return {shadow_.data(), data.count, data.dtype};
}

void ModelCopies::commit(View data, ConstView average, Duration patience) {
  if (data.count == 0) return;
  if (data.memory == Memory::kHost) {
    std::memcpy(data.data, average.data, data.size_bytes());
    return;
  }
  motley::copy(data, average, pinned_->copies);
  pinned_->done.record(pinned_->copies);
  if (comm_.engine().wait(pinned_->done, comm_.clock().now() + patience)) return;
  throw Error(ErrorCode::kIo,
              fmt::format("partial_reduce: the device of rank {} has not taken the average of {} "
                          "bytes within {:.1f} s. Restart the rank: the model is undefined.",
                          comm_.rank(), data.size_bytes(), to_seconds(patience)));
}

}  // namespace motley
