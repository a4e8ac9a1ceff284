#include "comm/control/locator.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/error.h"

namespace motley {
namespace {

// "all_reduce-1580", "all_reduce-7-group-5.1": the same on all members.
std::string dump_name(const Call& call) {
  const GroupTag& tag = call.group->tag();
  const std::string name = fmt::format("{}-{}", motley::name(call.kind), call.number);
  if (tag.id == 0) return name;
  return fmt::format("{}-group-{:x}.{}", name, tag.id, tag.attempt);
}

}  // namespace

void Locator::ask(const Call& call) {
  control_.ask_report(call.group->tag(), call.number, call.group->ranks());
}

// A member without a sign of life for longer than a few of them are apart counts as stopped.
Diagnosis Locator::explain(const Call& call, TimePoint now) {
  Diagnosis diagnosis;
  if (const auto report = control_.last_report()) {
    diagnosis = diagnose(*report,
                         {.group = call.group->tag(),
                          .number = call.number,
                          .rank = control_.rank(),
                          .members = call.group->ranks(),
                          .silence = std::min(options_.lease / 2, 4 * options_.heartbeat)},
                         now);
  }
  diagnosis.text += dump(
      dump_name(call),
      fmt::format("{} #{} timed out at rank {}", name(call.kind), call.number, control_.rank()));
  return diagnosis;
}

std::string Locator::dump(const std::string& name, const std::string& why) {
  if (options_.dump.empty()) return "";
  try {
    return fmt::format(
        " The last calls of all ranks follow in {}, from the rank that asked first.",
        control_.dump(options_.dump, name, why,
                      [this](LogLevel level, const auto& text) { options_.tell(level, text); }));
  } catch (const Error& error) {
    return fmt::format(" The last calls of all ranks are not told: {}.", error.what());
  }
}

}  // namespace motley
