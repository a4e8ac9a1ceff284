#include "comm/executor/watch.h"

#include <algorithm>
#include <utility>

#include "comm/algorithm/families.h"

namespace motley {
namespace {

CallRecord record_of(const Call& call, const Fingerprint& fingerprint) {
  const auto& families = algorithms_of(call.kind);
  const auto family = static_cast<std::size_t>(call.algorithm);
  return {.group = call.group->tag(),
          .number = call.number,
          .kind = call.kind,
          .dtype = fingerprint.dtype,
          .op = fingerprint.op,
          .count = fingerprint.count,
          .algorithm = family < families.size() ? families[family].name : "team",
          .started = call.started};
}

// When the members of a call are asked after for the last time.
TimePoint last_question(const Call& call) {
  return call.deadline - std::min(Watch::kBeforeDeadline, (call.deadline - call.started) / 4);
}

}  // namespace

void Watch::begin(Watched& watched, const Call& call, const Fingerprint& fingerprint) {
  recorder_.tick(call.started);
  watched.ticket = recorder_.start(record_of(call, fingerprint));
  watched.next = std::min(call.started + kLate, last_question(call));
}

void Watch::arrived(Watched& watched, std::uint64_t messages, std::uint64_t bytes, TimePoint now) {
  if (messages == watched.messages) return;
  watched.messages = messages;
  recorder_.arrive(watched.ticket, bytes, now);
}

void Watch::look(Watched& watched, const Call& call, const Fingerprint& fingerprint,
                 const std::vector<int>& awaited, TimePoint now) {
  if (!std::exchange(watched.questioned, true)) {
    notices_.ask({call.group->tag(), call.number}, fingerprint, awaited);
  }
  watched.next = last_question(call);
  if (now < watched.next) return;
  watched.next = TimePoint::max();
  if (explainer_ != nullptr) explainer_->ask(call);
}

Diagnosis Watch::explain(const Call& call, TimePoint now) {
  return explainer_ == nullptr ? Diagnosis{} : explainer_->explain(call, now);
}

void Watch::end(Watched& watched, const RunningCall& work, TimePoint now) {
  const bool failed = work.error().has_value();
  recorder_.end(watched.ticket, failed ? CallRecord::kFailed : CallRecord::kDone, now);
  if (failed) notices_.forget(work.id());
  if (!work.notice()) return;
  if (!failed) notices_.keep(*work.notice());
  notices_.tell(*work.call().group, *work.notice());
}

void Watch::completed_at_once(const TeamCall& call) noexcept {
  const TimePoint now = recorder_.ticked();
  recorder_.over({.group = call.id.group,
                  .number = call.id.number,
                  .kind = call.fingerprint.kind,
                  .dtype = call.fingerprint.dtype,
                  .op = call.fingerprint.op,
                  .state = CallRecord::kDone,
                  .count = call.fingerprint.count,
                  .algorithm = "team",
                  .started = now,
                  .ended = now});
}

}  // namespace motley
