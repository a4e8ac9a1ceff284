#include "comm/partial_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "comm/communicator.h"
#include "comm/control/client.h"
#include "comm/error.h"
#include "comm/executor/engine.h"

namespace motley {
namespace {

// What withdraw() and the destructor wait for an answer at most; the controller acts on the message
// all the same.
constexpr Duration kLastWords = seconds(1);

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

  PartialResult average(View data, std::int64_t step);
  GroupOutcome run_group(const Group& group, View data, TimePoint deadline);
  void withdraw() noexcept;
  void leave(Duration patience);

  Communicator& comm;
  ControlClient* control;  // null with one rank
  PartialOptions options;
  std::vector<std::byte> shadow;  // the average, until the group commits it; kept for the next call
  bool left = false;
};

PartialResult PartialReducer::Impl::average(View data, std::int64_t step) {
  if (left) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("partial_reduce: rank {} calls average at step {} after leave. Make another "
                    "PartialReducer to come back.",
                    comm.rank(), step));
  }
  if (data.memory != Memory::kHost) {
    throw Error(
        ErrorCode::kUnavailable,
        "partial_reduce: device memory is not supported in this version. Copy to host memory.");
  }
  PartialResult result{.group = {comm.rank()}};
  if (comm.size() == 1) return result;
  const TimePoint start = comm.clock().now();
  const TimePoint deadline = start + options.timeout;
  TimePoint formed = start;
  try {
    GroupOutcome outcome = control->ready(step, options.group_size, deadline);
    formed = comm.clock().now();
    while (outcome.kind == GroupOutcome::kGroup) {
      const Group group(outcome.members, outcome.tag);
      result.attempts = static_cast<int>(outcome.tag.attempt) + 1;
      outcome = run_group(group, data, deadline);
      if (outcome.kind == GroupOutcome::kCommit) {
        if (data.count > 0) std::memcpy(data.data, shadow.data(), data.size_bytes());
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

// Averages into the shadow and tells the controller how it went; returns what comes next.
GroupOutcome PartialReducer::Impl::run_group(const Group& group, View data, TimePoint deadline) {
  comm.engine().retire_before(group.tag());
  if (shadow.size() < data.size_bytes()) shadow.resize(data.size_bytes());
  // Half of the time left, so that there is time for another attempt, and in the end an end.
  const Duration patience = (deadline - comm.clock().now()) / 2;
  int suspect = -1;
  try {
    const View average(shadow.data(), data.count, data.dtype);
    comm.all_reduce(ConstView(data), average, ReduceOp::kAverage,
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

PartialResult PartialReducer::average(View data, std::int64_t step) {
  return impl_->average(data, step);
}

void PartialReducer::leave() { impl_->leave(impl_->options.timeout); }

}  // namespace motley
