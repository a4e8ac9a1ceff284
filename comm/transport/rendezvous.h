// comm/transport/rendezvous.h: every rank tells every other something, through the store.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/factory.h"

namespace motley {

// Publishes `mine` under the key `name`/`what`/rank and waits for the others'.
//   result  by rank; `mine` at the own rank; empty where setup.members leaves a rank out
//   errors  kTimeout, naming the ranks that are missing at setup.deadline
std::vector<std::string> exchange(const TransportSetup& setup, std::string_view what,
                                  std::string_view mine);

}  // namespace motley
