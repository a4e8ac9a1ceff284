#include "comm/cli/perf/versus_table.h"

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "comm/cli/perf/goal.h"
#include "comm/cli/perf/plan.h"

namespace motley::perf {
namespace {

constexpr const char* kColumns =
    "   size  private us allocated us   best us  best peer                  private/ allocated/ "
    "  private/    limit/\n"
    "                                                                         best       best    "
    "   default allocated\n";

std::string time_text(const std::optional<double>& time) {
  return time ? fmt::format("{:.2f}", *time * 1e6) : "-";
}

std::string ratio_text(const std::optional<Ratio>& ratio) {
  return ratio ? fmt::format("{:.3f}{}", ratio->value, ratio->alike ? " " : "~") : "held up ";
}

std::string share_text(const std::optional<Share>& share) {
  if (!share) return "-";
  return share->value ? fmt::format("{:.3f}", *share->value) : "noise";
}

std::string row(const Comparison& comparison, const Point& point) {
  const std::size_t own = comparison.ours(Buffers::kPrivate);
  const std::size_t shared = comparison.ours(Buffers::kAllocated);
  const auto best = comparison.best(point);
  const auto plain = comparison.best(point, Comparison::Peers::kDefaultHeap);
  const auto against = [&](std::size_t mine, const std::optional<std::size_t>& peer) {
    const bool both = peer && comparison.ran(point, mine);
    return both ? ratio_text(comparison.ratio(point, mine, *peer)) : "- ";
  };
  const auto not_run = comparison.not_run(point);
  return fmt::format(
      "{:>7} {:>11} {:>12} {:>9}  {:<24} {:>10} {:>10} {:>10} {:>9}{}\n", size_text(point.bytes),
      time_text(comparison.time(point, own)), time_text(comparison.time(point, shared)),
      time_text(best ? comparison.time(point, *best) : std::nullopt),
      best ? comparison.competitors()[*best].name : "-", against(own, best), against(shared, best),
      against(own, plain), share_text(comparison.share(point)),
      not_run.empty() ? "" : fmt::format("  not beaten, as not run: {}", fmt::join(not_run, "; ")));
}

std::string where(const Point& point) {
  return fmt::format("{} ranks, {} of {} {} place", point.ranks, name(point.kind),
                     size_text(point.bytes), point.place == Place::kIn ? "in" : "out of");
}

}  // namespace

void print_tables(const Comparison& comparison) {
  fmt::print(R"(
private, allocated  Motley's median time of a call, with buffers of either kind
best                the peer with the least median, whichever way it is run
private/best        our time over its: medians over turns in which the probes agree; ~: none did;
                    "held up": in every turn one of the two took five times as long as otherwise
private/default     the same against the best peer as users get it, with a heap that faults
limit/allocated     share of the machine's memory bandwidth that we reach (16 MiB and more), as
                    measured before and after each run; "noise": less than we reached
)");
  using Section = std::tuple<int, CallKind, Place>;
  std::optional<Section> last;
  for (const Point& point : comparison.points()) {
    const Section section{point.ranks, point.kind, point.place};
    if (section != last) {
      fmt::print("\n{} on {} ranks, {} place\n{}", name(point.kind), point.ranks,
                 point.place == Place::kIn ? "in" : "out of", kColumns);
    }
    last = section;
    fmt::print("{}", row(comparison, point));
  }
}

void print_goals(const Comparison& comparison) {
  fmt::print("\nAsked for: met at so many of the points measured; the worst\n");
  for (const Goal& goal : goals()) {
    const Verdict verdict = judge(goal, comparison);
    if (verdict.points == 0) {
      fmt::print("  not measured  {}\n", goal.what);
      continue;
    }
    const bool compared = verdict.worst_point.ranks != 0;
    fmt::print("  {:>4} of {:<4}  {} (at most {:.4g}): {}{}\n", verdict.met, verdict.points,
               goal.what, goal.at_most,
               compared ? fmt::format("{:.3g} at {}", verdict.worst, where(verdict.worst_point))
                        : "nothing to compare with",
               verdict.unknown > 0 ? fmt::format("; not known at {}", verdict.unknown) : "");
    if (!verdict.open.empty()) {
      fmt::print("                not run, so not beaten: {}\n", fmt::join(verdict.open, "; "));
    }
  }
}

}  // namespace motley::perf
