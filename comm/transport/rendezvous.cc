#include "comm/transport/rendezvous.h"

#include <fmt/format.h>

namespace motley {

std::vector<std::string> exchange(const TransportSetup& setup, std::string_view what,
                                  std::string_view mine) {
  const auto key = [&](int rank) { return fmt::format("{}/{}/{}", setup.name, what, rank); };
  setup.store.set(key(setup.rank), mine);
  std::vector<std::string> all(static_cast<std::size_t>(setup.size));
  std::vector<int> missing;
  for (int rank = 0; rank < setup.size; ++rank) {
    if (rank == setup.rank) {
      all[static_cast<std::size_t>(rank)] = mine;
      continue;
    }
    try {  // once the deadline has passed, get() still returns what is there
      all[static_cast<std::size_t>(rank)] = setup.store.get(key(rank), setup.deadline);
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
