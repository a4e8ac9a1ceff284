// comm/transport/sim.h: thousands of ranks in one thread, in virtual time.
//
//   SimNetwork network({.topology = Topology::uniform(2048), .seed = 7});
//   network.kill(3, TimePoint(seconds(0.01)));
//   for (int rank = 0; rank < 2048; ++rank) {
//     engines.push_back(std::make_unique<Engine>(network.transport(rank), network.clock()));
//     requests.push_back(engines.back()->start(call));
//   }
//   while (network.step()) {
//   }
//
// A message takes what comm/topology.h says: it leaves when the sender's port is free, and arrives
// when the receiver's port is. Messages between two ranks stay in order. Computing takes no virtual
// time unless a rank sleeps. The same options and calls give the same events, whatever the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "comm/algorithm/traffic.h"
#include "comm/clock.h"
#include "comm/topology.h"
#include "comm/transport/event_queue.h"
#include "comm/transport/transport.h"

namespace motley {

struct SimOptions {
  Topology topology = Topology::uniform(2);
  std::uint64_t seed = 1;
  double jitter = 0;  // a message's latency grows by up to this share of it, at random
  // How long after a death the transports of the other ranks report it, if ever.
  Duration detection = Duration::max();
  std::size_t max_message_bytes = 1 << 20;
  // Called where `rank` waits: returns when notify(rank) was called or virtual time is `until`.
  // Without it, the rank that waits makes the events happen itself.
  std::function<void(int rank, TimePoint until)> block;
  // Something happened to `rank` for which it may be waiting.
  std::function<void(int rank)> notify;
};

class SimNetwork {
 public:
  explicit SimNetwork(SimOptions options);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;
  ~SimNetwork();

  // The seat of `rank`, once. The network must outlive it.
  std::unique_ptr<Transport> transport(int rank);
  // Virtual time, which starts at TimePoint{}. sleep_until() makes the events until then happen.
  Clock& clock() noexcept { return clock_; }
  const SimOptions& options() const noexcept { return options_; }

  // Makes the earliest event happen: a message is handed to its receiver's sink. False if none is
  // left.
  bool step();
  // When step() would happen; TimePoint::max() if it would not.
  TimePoint next_event() const noexcept;
  // Lets time pass in which nothing happens; `time` is not after next_event().
  void advance_to(TimePoint time) noexcept;

  // --- Faults, each given before it happens -----------------------------------------------------

  // `rank` dies: it receives no more, nothing that it sends arrives, and its wait() throws
  // kAborted. What it sent before still arrives.
  void kill(int rank, TimePoint at);
  // Nothing arrives at `rank` in [from, until); what should have arrives then. Each rank has one
  // stall, the last given.
  void stall(int rank, TimePoint from, TimePoint until);
  // No message between the ranks of `side` and the others arrives in [from, until); what should
  // have arrives then.
  void partition(const std::vector<int>& side, TimePoint from, TimePoint until);
  bool is_alive(int rank) const noexcept;

  // Messages handed over so far.
  std::uint64_t messages() const noexcept { return delivered_; }

 private:
  class Seat;
  struct Port;
  struct Message;
  struct Partition {
    TimePoint from;
    TimePoint until;
    std::vector<char> side;  // by rank
  };
  class SimClock final : public Clock {
   public:
    explicit SimClock(SimNetwork& network) : network_(network) {}
    TimePoint now() const override { return network_.now_; }
    void sleep_until(TimePoint until) override;

   private:
    SimNetwork& network_;
  };

  Port& port(int rank) noexcept;
  const Port& port(int rank) const noexcept;
  Message& message(std::uint32_t slot) noexcept;
  std::uint32_t take_slot();
  void send(int from, int to, const Tag& tag, ConstBytes data);
  TimePoint held_until(const Message& message) const noexcept;
  void arrive(const EventQueue::Event& event);
  void die(int rank);
  void tell_all(int dead);
  void touch(int rank);
  void mark_ready(int rank);
  bool deliver_ready();
  void wait(int rank, TimePoint until);

  SimOptions options_;
  SimClock clock_{*this};
  Traffic traffic_;
  TimePoint now_{};
  std::mt19937_64 random_;
  std::vector<Port> ports_;
  EventQueue queue_;
  std::vector<std::unique_ptr<Message[]>> blocks_;  // slots, at addresses that do not change
  std::vector<std::uint32_t> free_slots_;
  std::vector<int> ready_;  // ranks whose posted receives may match kept messages
  std::vector<Partition> partitions_;
  std::uint64_t delivered_ = 0;
};

}  // namespace motley
