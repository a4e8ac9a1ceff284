// Averages in pieces, which begin while the rest of the step is still computed.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "comm/error.h"
#include "comm/executor/engine.h"
#include "comm/executor/partial_reducer.h"

namespace motley {

void PartialReducer::Impl::begin(View data, std::int64_t step, Duration eta) {
  if (begun || options.piece_bytes == 0 || data.memory != Memory::kHost) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("partial_reduce: rank {} begins step {} with {} bytes a piece of {} "
                            "memory, {}. Set piece_bytes, and finish() each step before the next.",
                            comm.rank(), step, options.piece_bytes,
                            data.memory == Memory::kHost ? "host" : "device",
                            begun ? "and one was begun" : "none being begun"));
  }
  announce(step, eta, in_pieces() ? usual_average.least() : Duration{});
  begun = {.data = data, .step = step};
  pieces.begin(data);
}

void PartialReducer::Impl::ready(std::size_t first, std::size_t count) {
  if (!begun) {
    throw Error(ErrorCode::kInvalid, "partial_reduce: ready() without begin() before.");
  }
  pieces.ready(first, count);
  if (in_pieces() && control != nullptr) start_pieces();
}

// With its group, where that is known by now, or is another than before. The others cannot complete
// the average before this rank says at the end of its step that it takes part; should it not come
// in time, they are told, and go on without it.
void PartialReducer::Impl::start_pieces() {
  const auto outcome = control->announced_group();
  if (!outcome || pieces.runs(outcome->tag)) return;
  const Group group(outcome->members, outcome->tag);
  comm.engine().retire_before(group.tag());
  pieces.start(group, plan_of(*outcome), copies.shadow_of(begun->data),
               std::max(patience_for(*outcome, comm.clock().now() + options.timeout), Duration(1)));
}

PartialResult PartialReducer::Impl::finish() {
  if (!begun) {
    throw Error(ErrorCode::kInvalid, "partial_reduce: finish() without begin() before.");
  }
  const Begun step = *std::exchange(begun, std::nullopt);
  return average(step.data, step.step, {}, Part::kGives, step);
}

AveragePlan PartialReducer::Impl::plan_of(const GroupOutcome& outcome) const {
  return {.weights = outcome.note.weights,
          .damped = options.weighting.damped,
          .deterministic = options.deterministic,
          .large = outcome.note.large};
}

// False if a member that was to give had no numbers, or larger ones than the group was told of:
// nobody has taken the average.
bool PartialReducer::Impl::average_once(const Group& group, const GroupOutcome& outcome,
                                        const ReadyNote& note, ConstView own, View average,
                                        Duration most) {
  const TimePoint start = comm.clock().now();
  const AveragePlan plan = plan_of(outcome);
  if (in_pieces()) {
    if (!pieces.runs(group.tag())) pieces.start(group, plan, average, std::max(most, Duration(1)));
    if (!pieces.finish(note.gives && (!note.large || plan.large))) return false;
    usual_average.took(pieces.took());
  } else if (options.payload == Payload::kExact) {
    group_average(group, plan, own, average, start + most);
  } else {
    lossy_average(group, plan, own, average, start + most);
  }
  if (plan.large) bound(average);
  // Pieces may have been under way before.
  const Duration time = comm.clock().now() - start;
  usual_patience.took(group.ranks().size(), in_pieces() ? std::max(time, pieces.took()) : time);
  return true;
}

}  // namespace motley
