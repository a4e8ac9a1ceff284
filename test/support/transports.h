// test/support/transports.h: several ranks' transports driven by one thread, and a sink that notes
// what happens.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/options.h"
#include "comm/transport/composite.h"
#include "comm/transport/factory.h"
#include "comm/transport/inproc.h"
#include "test/support/memory_store.h"

namespace motley::test {

inline constexpr Duration kPatience = seconds(30);  // after which a test fails

inline std::unique_ptr<Transport> make_transport(const std::string& name,
                                                 const TransportSetup& setup) {
  if (name == "shm") return make_shm_transport(setup);
  if (name == "ucx") return make_ucx_transport(setup);
  TransportSetup two_hosts = setup;  // ranks 0 and 1 are on the first
  for (int rank = 0; rank < setup.size; ++rank) two_hosts.hosts.push_back(rank < 2 ? 0 : 1);
  return make_composite_transport(two_hosts);
}

// `size` transports that know each other, by rank.
inline std::vector<std::unique_ptr<Transport>> make_transports(const std::string& name, int size,
                                                               const Options& options) {
  std::vector<std::unique_ptr<Transport>> all(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  MemoryStore store;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        all[static_cast<std::size_t>(rank)] =
            make_transport(name, {.rank = rank,
                                  .size = size,
                                  .store = store,
                                  .name = "test",
                                  .clock = Clock::real(),
                                  .options = options,
                                  .deadline = Clock::real().now() + kPatience});
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return all;
}

// Notes every completion. Data is copied.
struct NotingSink final : Sink {
  struct Received {
    std::uint32_t cookie;
    Tag tag;
    std::vector<std::byte> data;
  };
  struct Failed {
    std::uint32_t cookie;
    ErrorCode code;
    std::vector<int> ranks;
    std::string text;
  };
  void sent(std::uint32_t cookie) override { sends.push_back(cookie); }
  void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) override {
    receives.push_back({cookie, tag, {data.begin(), data.end()}});
  }
  void failed(std::uint32_t cookie, const Error& error) override {
    failures.push_back({cookie, error.code(), error.ranks(), error.what()});
  }
  void disagreed(int from, const Tag&, const Fingerprint&) override {
    disagreements.push_back(from);
  }
  bool untouched() const { return sends.empty() && receives.empty() && failures.empty(); }

  std::vector<std::uint32_t> sends;
  std::vector<Received> receives;
  std::vector<Failed> failures;
  std::vector<int> disagreements;  // with whom
};

inline Tag tag_of(std::uint32_t call, std::uint32_t piece = 0) {
  return {.call = {.group = {}, .number = call}, .piece = piece, .fingerprint = {.count = call}};
}

// `size` bytes that differ for each `seed`.
inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> data(size);
  std::uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::byte& b : data) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    b = static_cast<std::byte>(x >> 56);
  }
  return data;
}

// Polls `transport`, sleeping while nothing moves, until `done` or kPatience has passed.
inline bool run_until(Transport& transport, const std::function<bool()>& done) {
  const TimePoint deadline = Clock::real().now() + kPatience;
  while (!done()) {
    if (Clock::real().now() > deadline) return false;
    if (!transport.poll() && !done()) transport.wait(deadline);
  }
  return true;
}

}  // namespace motley::test
