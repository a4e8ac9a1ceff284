#include "comm/transport/ucx_link.h"

#include <algorithm>

namespace motley {
namespace {

constexpr std::uint64_t kLeastWindow = 1 << 20;
constexpr std::uint64_t kUnknownWindow = 8 << 20;
constexpr int kMessages = 4;     // of the largest size fit into any window
constexpr double kInFlight = 2;  // round trips that a window holds
constexpr double kTrips = 3;     // that rendezvous adds
constexpr double kWorth = 10;    // so many times as long as they the transfer must take

std::size_t asked_for(const UcxLimits& limits) noexcept {
  return limits.rendezvous_from < 0 ? UcxLinkUse::kNever
                                    : static_cast<std::size_t>(limits.rendezvous_from);
}

}  // namespace

UcxLimits UcxLimits::of(const Options& options, bool remote_memory) noexcept {
  const std::uint64_t least =
      std::max<std::uint64_t>(kLeastWindow, kMessages * options.segment_bytes);
  return {.least_window = least,
          .most_window = std::max<std::uint64_t>(least, options.ucx_window),
          .remote_memory = remote_memory,
          .rendezvous_from = options.ucx_rendezvous};
}

UcxLinkUse use_unknown(const UcxLimits& limits) noexcept {
  return {.window = std::clamp(kUnknownWindow, limits.least_window, limits.most_window),
          .rendezvous_from = asked_for(limits)};
}

UcxLinkUse use_of(const Link& link, const UcxLimits& limits) noexcept {
  const double trip = to_seconds(link.latency) * link.bytes_per_second;  // bytes
  const auto least = static_cast<double>(limits.least_window);
  const auto most = static_cast<double>(limits.most_window);
  UcxLinkUse use{
      .window = static_cast<std::uint64_t>(std::clamp(kInFlight * 2 * trip, least, most)),
      .rendezvous_from = asked_for(limits)};
  if (limits.rendezvous_from < 0 && limits.remote_memory) {
    use.rendezvous_from = static_cast<std::size_t>(std::clamp(kWorth * kTrips * trip, 1.0, 1e18));
  }
  return use;
}

}  // namespace motley
