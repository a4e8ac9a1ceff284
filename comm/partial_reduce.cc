#include "comm/partial_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/error.h"
#include "comm/executor/arguments.h"
#include "comm/executor/engine.h"

namespace motley {
namespace {

// What withdraw() and the destructor wait for an answer at most; the controller acts on the message
// all the same.
constexpr Duration kLastWords = seconds(1);

// Host copies of a model on a device, of the device that is current when it is made.
struct PinnedModel {
  explicit PinnedModel(std::size_t bytes) : own(bytes), average(bytes) {}

  PinnedBuffer own;
  PinnedBuffer average;
  Stream copies;
  Event done;
};

}  // namespace

struct PartialReducer::Impl {
  Impl(Communicator& comm_, const PartialOptions& options_)
      : comm(comm_), control(comm_.control()), options(options_) {
    if (options.timeout <= Duration::zero()) options.timeout = comm.options().timeout;
    if (comm.size() == 1) return;
    if (options.group_size < 2 || options.group_size > comm.size()) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("partial_reduce: group_size is {}, but there are {} ranks. Use 2 to {}.",
                      options.group_size, comm.size(), comm.size()));
    }
    if (control == nullptr) {
      throw Error(
          ErrorCode::kInvalid,
          fmt::format("partial_reduce: the communicator of {} ranks has no controller to form "
                      "groups. Join with Options::controller set.",
                      comm.size()));
    }
  }

  PartialResult average(View data, std::int64_t step, StreamRef stream);
  GroupOutcome run_group(const Group& group, ConstView own, View average, TimePoint deadline);
  ConstView bring(View data, StreamRef stream, TimePoint deadline);
  View shadow_of(View data);
  void commit(View data, ConstView average);
  void withdraw() noexcept;
  void leave(Duration patience);

  Communicator& comm;
  ControlClient* control;  // null with one rank
  PartialOptions options;
  // The average, until the group commits it; kept for the next call. Of data on a device both this
  // and what this rank has are pinned copies: the model itself is written by the commit only.
  std::vector<std::byte> shadow;
  std::optional<PinnedModel> pinned;
  bool left = false;
};

PartialResult PartialReducer::Impl::average(View data, std::int64_t step, StreamRef stream) {
  if (left) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("partial_reduce: rank {} calls average at step {} after leave. Make another "
                    "PartialReducer to come back.",
                    comm.rank(), step));
  }
  if (data.memory == Memory::kDevice) check_memory("partial_reduce", {{"data", data}});
  PartialResult result{.group = {comm.rank()}};
  if (comm.size() == 1) return result;
  const TimePoint start = comm.clock().now();
  const TimePoint deadline = start + options.timeout;
  const ConstView own = bring(data, stream, deadline);
  const View average = shadow_of(data);
  TimePoint formed = start;
  try {
    GroupOutcome outcome = control->ready(step, options.group_size, deadline);
    formed = comm.clock().now();
    while (outcome.kind == GroupOutcome::kGroup) {
      const Group group(outcome.members, outcome.tag);
      result.attempts = static_cast<int>(outcome.tag.attempt) + 1;
      outcome = run_group(group, own, average, deadline);
      if (outcome.kind == GroupOutcome::kCommit) {
        commit(data, average);
        result.group = group.ranks();
        break;
      }
      formed = comm.clock().now();
      if (outcome.kind == GroupOutcome::kSolo) ++result.attempts;
    }
  } catch (const Error&) {
    withdraw();  // whatever the controller still has in mind for this step, we have no part in it
    throw;
  }
  result.waiting = formed - start;
  result.averaging = comm.clock().now() - formed;
  return result;
}

// What this rank has, in host memory, and where the average is to go there.
ConstView PartialReducer::Impl::bring(View data, StreamRef stream, TimePoint deadline) {
  if (data.memory == Memory::kHost) return data;
  if (!pinned || pinned->own.size_bytes() < data.size_bytes()) pinned.emplace(data.size_bytes());
  const View own = pinned->own.view(data.count, data.dtype);
  const auto wait = [&](const char* what) {
    if (comm.engine().wait(pinned->done, deadline)) return;
    throw Error(
        ErrorCode::kTimeout,
        fmt::format("partial_reduce: rank {} waited {:.1f} s for {} on the device. Raise the "
                    "timeout, or look at what the device does.",
                    comm.rank(), to_seconds(options.timeout), what));
  };
  pinned->done.record(stream);
  wait("the work in its stream");
  motley::copy(own, data, pinned->copies);
  pinned->done.record(pinned->copies);
  wait("a copy of the model");
  return own;
}

View PartialReducer::Impl::shadow_of(View data) {
  if (data.memory == Memory::kDevice) return pinned->average.view(data.count, data.dtype);
  if (shadow.size() < data.size_bytes()) shadow.resize(data.size_bytes());
  return {shadow.data(), data.count, data.dtype};
}

// The other members may have gone on with the average: what is left to do is this rank's own.
void PartialReducer::Impl::commit(View data, ConstView average) {
  if (data.count == 0) return;
  if (data.memory == Memory::kHost) {
    std::memcpy(data.data, average.data, data.size_bytes());
    return;
  }
  motley::copy(data, average, pinned->copies);
  pinned->done.record(pinned->copies);
  if (comm.engine().wait(pinned->done, comm.clock().now() + options.timeout)) return;
  throw Error(ErrorCode::kIo,
              fmt::format("partial_reduce: the device of rank {} has not taken the average of {} "
                          "bytes within {:.1f} s. Restart the rank: the model is undefined.",
                          comm.rank(), data.size_bytes(), to_seconds(options.timeout)));
}

// Averages into the shadow and tells the controller how it went; returns what comes next.
GroupOutcome PartialReducer::Impl::run_group(const Group& group, ConstView own, View average,
                                             TimePoint deadline) {
  comm.engine().retire_before(group.tag());
  // Half of the time left, so that there is time for another attempt, and in the end an end.
  const Duration patience = (deadline - comm.clock().now()) / 2;
  int suspect = -1;
  try {
    comm.all_reduce(own, average, ReduceOp::kAverage,
                    {.group = &group, .timeout = std::max(patience, Duration(1))})
        .wait();
  } catch (const Error& error) {
    const bool may_recover =
        error.code() == ErrorCode::kPeerLost || error.code() == ErrorCode::kTimeout;
    if (!may_recover || patience < options.timeout / 64) throw;
    suspect = error.ranks().empty() ? -1 : error.ranks().front();
    return control->fail(group.tag(), suspect, deadline);
  }
  return control->done(group.tag(), deadline);
}

void PartialReducer::Impl::withdraw() noexcept {
  try {
    control->withdraw(comm.clock().now() + kLastWords);
  } catch (const std::exception&) {
    // The controller is gone, or this rank counts as dead: nobody waits for it.
  }
}

void PartialReducer::Impl::leave(Duration patience) {
  if (std::exchange(left, true) || control == nullptr) return;
  control->leave(comm.clock().now() + patience);
}

PartialReducer::PartialReducer(Communicator& comm, const PartialOptions& options)
    : impl_(std::make_unique<Impl>(comm, options)) {}

PartialReducer::PartialReducer(PartialReducer&&) noexcept = default;

PartialReducer::~PartialReducer() {
  if (impl_ == nullptr) return;  // moved from
  try {
    impl_->leave(kLastWords);
  } catch (const std::exception&) {
    // As in withdraw().
  }
}

PartialResult PartialReducer::average(View data, std::int64_t step, StreamRef stream) {
  return impl_->average(data, step, stream);
}

void PartialReducer::leave() { impl_->leave(impl_->options.timeout); }

}  // namespace motley
