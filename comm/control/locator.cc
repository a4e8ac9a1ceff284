#include "comm/control/locator.h"

namespace motley {

void Locator::ask(const Call& call) {
  control_.ask_report(call.group->tag(), call.number, call.group->ranks());
}

Diagnosis Locator::explain(const Call& call, TimePoint now) {
  const auto report = control_.last_report();
  if (!report) return {};
  return diagnose(*report,
                  {.group = call.group->tag(),
                   .number = call.number,
                   .rank = control_.rank(),
                   .members = call.group->ranks(),
                   .silence = silence_},
                  now);
}

}  // namespace motley
