// Latency and bandwidth of one message after another between two processes, without collectives.
//
//   latency    half of a round trip, median and 99th percentile
//   bandwidth  one way, messages of the largest size, 4 receives ahead; median of 20 runs
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "comm/options.h"
#include "comm/transport/factory.h"
#include "test/support/forked_ranks.h"

namespace motley::test {
namespace {

struct Counter final : Sink {
  void sent(std::uint32_t) override { ++sends; }
  void received(std::uint32_t, const Tag&, ConstBytes data) override {
    ++receives;
    if (!into.empty()) std::copy(data.begin(), data.end(), into.begin());
  }
  void failed(std::uint32_t, const Error& error) override { throw error; }
  std::uint64_t sends = 0;
  std::uint64_t receives = 0;
  std::vector<std::byte> into;  // what the receiver does with a message: it copies it out
};

template <class Done>
void run_until(Transport& transport, const Done& done) {
  while (!done()) {
    if (!transport.poll() && !done()) transport.wait(Clock::real().now() + seconds(1));
  }
}

Tag tag_of(std::uint32_t call) { return {.call = {.group = {}, .number = call}}; }

double seconds_since(TimePoint start) { return to_seconds(Clock::real().now() - start); }

// One way, in microseconds, sorted.
std::vector<double> latencies(Transport& transport, std::size_t bytes, int rounds) {
  const int peer = 1 - transport.rank();
  const std::vector<std::byte> data(bytes);
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    Counter sink;
    sink.into.resize(bytes);
    const TimePoint start = Clock::real().now();
    transport.post_recv(peer, tag_of(1), sink, 0);
    if (transport.rank() == 1) run_until(transport, [&] { return sink.receives == 1; });
    if (!transport.post_send(peer, tag_of(1), data, sink, 0)) {
      run_until(transport, [&] { return sink.sends == 1; });
    }
    if (transport.rank() == 0) run_until(transport, [&] { return sink.receives == 1; });
    if (i >= rounds / 10) times.push_back(seconds_since(start) / 2 * 1e6);
  }
  std::sort(times.begin(), times.end());
  return times;
}

// From rank 0 to rank 1, in GB/s.
double bandwidth(Transport& transport, std::uint64_t messages) {
  constexpr std::uint64_t kAhead = 4;
  const std::size_t bytes = transport.max_message_bytes();
  std::vector<double> rates;
  const std::vector<std::byte> data(bytes);
  for (int repeat = 0; repeat < 21; ++repeat) {
    Counter sink, ack;
    sink.into.resize(bytes);
    const TimePoint start = Clock::real().now();
    if (transport.rank() == 0) {
      for (std::uint64_t i = 0; i < messages; ++i) {
        const std::uint64_t before = sink.sends;
        if (!transport.post_send(1, tag_of(2), data, sink, 0)) {
          run_until(transport, [&] { return sink.sends > before; });
        }
      }
      transport.post_recv(1, tag_of(3), ack, 0);
      run_until(transport, [&] { return ack.receives == 1; });
    } else {
      for (std::uint64_t i = 0; i < messages; ++i) {
        if (i < kAhead) transport.post_recv(0, tag_of(2), sink, 0);
      }
      for (std::uint64_t i = 0; i < messages; ++i) {
        run_until(transport, [&] { return sink.receives > i; });
        if (i + kAhead < messages) transport.post_recv(0, tag_of(2), sink, 0);
      }
      if (!transport.post_send(0, tag_of(3), {}, ack, 0)) {
        run_until(transport, [&] { return ack.sends == 1; });
      }
    }
    if (repeat > 0) {
      rates.push_back(static_cast<double>(messages * bytes) / seconds_since(start) / 1e9);
    }
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

using Factory = std::unique_ptr<Transport> (*)(const TransportSetup&);

void measure(Factory make) {
  ForkedRanks ranks(2, [make](int rank, Store& store) {
    const Options options;
    const auto transport = make({.rank = rank,
                                 .size = 2,
                                 .store = store,
                                 .name = "perf",
                                 .clock = Clock::real(),
                                 .options = options,
                                 .deadline = Clock::real().now() + seconds(30)});
    for (const std::size_t bytes : {0, 8, 1024, 16 << 10, 128 << 10}) {
      const auto times = latencies(*transport, bytes, bytes < 4096 ? 20000 : 3000);
      if (rank == 0) {
        fmt::print("{:<10} {:>8} B {:>9.2f} us {:>9.2f} us\n", transport->name(), bytes,
                   times[times.size() / 2], times[times.size() * 99 / 100]);
      }
    }
    const double rate = bandwidth(*transport, 1000);
    if (rank == 0) {
      fmt::print("{:<10} {:>8} B {:>9.2f} GB/s\n", transport->name(),
                 transport->max_message_bytes(), rate);
    }
    return true;
  });
  for (int rank : {0, 1}) {
    if (!ranks.succeeded(rank)) fmt::print("rank {} failed\n", rank);
  }
}

}  // namespace
}  // namespace motley::test

int main() {
  fmt::print("{:<10} {:>10} {:>12} {:>12}\n", "transport", "message", "median", "p99");
  std::fflush(stdout);
  motley::test::measure(motley::make_shm_transport);
  motley::test::measure(motley::make_ucx_transport);
}
