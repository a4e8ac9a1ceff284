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
  announce(step, eta);
  begun = {.data = data, .step = step, .outcome = {}};
  pieces.begin(data);
}

// Where its group is known by now, this rank says that it begins, and may not be left out any more.
void PartialReducer::Impl::ready(std::size_t first, std::size_t count) {
  if (!begun) {
    throw Error(ErrorCode::kInvalid, "partial_reduce: ready() without begin() before.");
  }
  pieces.ready(first, count);
  if (begun->outcome || !in_pieces() || control == nullptr || !control->group_known()) return;
  ReadyNote note = last_note;
  note.grouping = grouping();
  note.version = version_at(begun->step);
  note.gives = true;
  const TimePoint deadline = comm.clock().now() + options.timeout;
  GroupOutcome outcome = control->ready(begun->step, note, deadline);
  if (outcome.kind == GroupOutcome::kHeal) return hand_on(outcome, deadline);
  begun->outcome = outcome;
  if (outcome.kind != GroupOutcome::kGroup) return;
  steps_away = 0;
  const Group group(outcome.members, outcome.tag);
  comm.engine().retire_before(group.tag());
  // The others may have much to compute, too; but there is to be time for another attempt.
  pieces.start(group, {outcome.note.weights, options.weighting.damped, options.deterministic},
               copies.shadow_of(begun->data), options.timeout / 2);
}

PartialResult PartialReducer::Impl::finish() {
  if (!begun) {
    throw Error(ErrorCode::kInvalid, "partial_reduce: finish() without begin() before.");
  }
  const Begun step = *std::exchange(begun, std::nullopt);
  return average(step.data, step.step, {}, Part::kGives, step);
}

// False if a member that was to give had no numbers: nobody has taken the average.
bool PartialReducer::Impl::average_once(const Group& group, const GroupOutcome& outcome, bool gives,
                                        ConstView own, View average, Duration most) {
  const TimePoint start = comm.clock().now();
  const AveragePlan plan{outcome.note.weights, options.weighting.damped, options.deterministic};
  if (in_pieces()) {
    if (!pieces.runs(group.tag())) pieces.start(group, plan, average, std::max(most, Duration(1)));
    if (!pieces.finish(gives)) return false;
  } else if (options.payload == Payload::kExact) {
    group_average(group, plan, own, average, start + most);
  } else {
    lossy_average(group, plan, own, average, start + most);
  }
  usual_patience.took(group.ranks().size(), comm.clock().now() - start);
  return true;
}

}  // namespace motley
