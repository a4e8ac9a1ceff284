#include "comm/transport/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

constexpr Duration kMoment = seconds(0.1);  // for a store to answer

}  // namespace

std::vector<std::string> exchange(const TransportSetup& setup, std::string_view what,
                                  std::string_view mine) {
  const auto key = [&](int rank) { return fmt::format("{}/{}/{}", setup.name, what, rank); };
  setup.store.set(key(setup.rank), mine);
  std::vector<std::string> all(static_cast<std::size_t>(setup.size));
  std::vector<int> missing;
  for (int rank = 0; rank < setup.size; ++rank) {
    if (!setup.joins(rank)) continue;
    if (rank == setup.rank) {
      all[static_cast<std::size_t>(rank)] = mine;
      continue;
    }
    // Once one is missing, the others get a moment each to show that they are there.
    const TimePoint moment = setup.clock.now() + kMoment;
    try {
      all[static_cast<std::size_t>(rank)] = setup.store.get(
          key(rank), missing.empty() ? setup.deadline : std::max(setup.deadline, moment));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout) throw;
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kTimeout,
                fmt::format("rank {} of {}: no sign of rank{} {} while joining \"{}\" ({}). Check "
                            "that all ranks were started, or raise join_timeout.",
                            setup.rank, setup.size, missing.size() == 1 ? "" : "s",
                            fmt::join(missing, ", "), setup.name, what),
                missing);
  }
  return all;
}

}  // namespace motley
