// test/support/joined.h: a communicator of a rank that meets the others in a store.
#pragma once

#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/transport/factory.h"

namespace motley::test {

using TransportFactory = std::function<std::unique_ptr<Transport>(const TransportSetup&)>;

// What the ranks leave in the store begins with this name: "world/ucx/address/0".
inline constexpr const char* kJoinedAs = "world";

inline Communicator joined(const TransportFactory& make, int rank, int size, Store& store,
                           const Options& options) {
  Clock& clock = Clock::real();
  return Communicator(make({.rank = rank,
                            .size = size,
                            .store = store,
                            .name = kJoinedAs,
                            .clock = clock,
                            .options = options,
                            .deadline = clock.now() + seconds(60)}),
                      clock, options);
}

}  // namespace motley::test
