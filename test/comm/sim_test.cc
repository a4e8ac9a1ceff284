// The simulated network: messages take the time that the topology says, in order; faults do what
// they are said to; the same seed gives the same run; ranks run as blocking code on fibers.
#include "comm/transport/sim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "comm/communicator.h"
#include "test/support/simulation.h"

namespace motley {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using test::run_simulated;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr TimePoint after(Duration d) { return TimePoint(d); }

// Keeps what it is told.
struct Log final : Sink {
  explicit Log(Clock& clock_) : clock(clock_) {}
  void sent(std::uint32_t) override {}
  void received(std::uint32_t cookie, const Tag&, ConstBytes data) override {
    cookies.push_back(cookie);
    sizes.push_back(data.size());
    times.push_back(clock.now().time_since_epoch());
    if (!data.empty()) last = std::to_integer<int>(data.back());
  }
  void failed(std::uint32_t, const Error& error) override { errors.push_back(error.code()); }

  Clock& clock;
  std::vector<std::uint32_t> cookies;
  std::vector<std::size_t> sizes;
  std::vector<Duration> times;
  std::vector<ErrorCode> errors;
  int last = -1;
};

// A network with a seat and a log per rank. A byte takes 1 ns, a message 10 us.
struct Net {
  explicit Net(int ranks, SimOptions options = {})
      : network([&] {
          options.topology =
              Topology::uniform(ranks, {.latency = microseconds(10), .bytes_per_second = 1e9});
          return options;
        }()) {
    for (int rank = 0; rank < ranks; ++rank) {
      seats.push_back(network.transport(rank));
      logs.push_back(std::make_unique<Log>(network.clock()));
    }
  }
  void send(int from, int to, std::size_t bytes, std::uint32_t piece = 0) {
    const std::vector<std::byte> data(bytes, std::byte{7});
    EXPECT_TRUE(seats[index(from)]->post_send(to, {.piece = piece}, data, log(from), 0));
  }
  void receive(int at, int from, std::uint32_t cookie = 0, std::uint32_t piece = 0) {
    seats[index(at)]->post_recv(from, {.piece = piece}, log(at), cookie);
  }
  void run() {
    while (network.step()) {
    }
  }
  Log& log(int rank) { return *logs[index(rank)]; }
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  SimNetwork network;
  std::vector<std::unique_ptr<Transport>> seats;
  std::vector<std::unique_ptr<Log>> logs;
};

TEST(SimNetwork, MessageTakesLatencyAndSizeOverBandwidth) {
  for (const std::size_t bytes : {0, 1, 24, 25, 100'000}) {  // 24: the most kept without a buffer
    Net net(2);
    net.receive(1, 0, 5);
    net.send(0, 1, bytes);
    EXPECT_THAT(net.log(1).cookies, ElementsAre());  // nothing happens by itself
    net.run();
    EXPECT_THAT(net.log(1).cookies, ElementsAre(5));
    EXPECT_THAT(net.log(1).sizes, ElementsAre(bytes));
    EXPECT_THAT(net.log(1).times, ElementsAre(microseconds(10) + nanoseconds(bytes)));
    EXPECT_EQ(net.log(1).last, bytes == 0 ? -1 : 7);
  }
}

TEST(SimNetwork, MessagesLeaveOneAfterAnother) {
  Net net(3);
  for (const int to : {1, 2}) {
    net.receive(to, 0);
    net.send(0, to, 1000);
  }
  net.run();
  EXPECT_THAT(net.log(1).times, ElementsAre(microseconds(11)));
  EXPECT_THAT(net.log(2).times, ElementsAre(microseconds(12)));
}

TEST(SimNetwork, MessagesComeInOneAfterAnother) {
  Net net(3);
  for (const int from : {0, 1}) {
    net.receive(2, from, static_cast<std::uint32_t>(from));
    net.send(from, 2, 1000);
  }
  net.run();
  EXPECT_THAT(net.log(2).times, ElementsAre(microseconds(11), microseconds(12)));
}

TEST(SimNetwork, LinksWithinAHostAreFaster) {
  SimNetwork network(
      {.topology = Topology::hosts({0, 0, 1}, {.within = {.latency = microseconds(1)},
                                               .between = {.latency = microseconds(50)}})});
  std::vector<std::unique_ptr<Transport>> seats;
  for (int rank = 0; rank < 3; ++rank) seats.push_back(network.transport(rank));
  Log log(network.clock());
  for (std::size_t to : {1, 2}) {
    seats[to]->post_recv(0, {}, log, 0);
    seats[0]->post_send(static_cast<int>(to), {}, {}, log, 0);
  }
  while (network.step()) {
  }
  EXPECT_THAT(log.times, ElementsAre(microseconds(1), microseconds(50)));
}

TEST(SimNetwork, KeepsMessagesThatNobodyHasAskedForYet) {
  Net net(2);
  net.send(0, 1, 3);
  net.send(0, 1, 4);
  net.run();
  net.receive(1, 0, 1);
  net.receive(1, 0, 2);
  EXPECT_THAT(net.log(1).cookies, ElementsAre());  // not from inside post_recv
  EXPECT_TRUE(net.network.step());
  EXPECT_THAT(net.log(1).cookies, ElementsAre(1, 2));
  EXPECT_THAT(net.log(1).sizes, ElementsAre(3, 4));
}

TEST(SimNetwork, JitterDelaysButKeepsTheOrderOfAPair) {
  const auto times_of = [](std::uint64_t seed) {
    Net net(2, {.seed = seed, .jitter = 2});
    for (std::uint32_t i = 0; i < 50; ++i) {
      net.receive(1, 0, i);
      net.send(0, 1, i);
    }
    net.run();
    for (std::uint32_t i = 0; i < 50; ++i) EXPECT_EQ(net.log(1).sizes[i], i) << "seed " << seed;
    EXPECT_GT(net.log(1).times.front(), microseconds(10));
    EXPECT_LT(net.log(1).times.back(),
              microseconds(32));  // 10 us, twice as much, and 1.2 us of bytes
    return net.log(1).times;
  };
  EXPECT_EQ(times_of(1), times_of(1));
  EXPECT_NE(times_of(1), times_of(2));
}

TEST(SimNetwork, DeadRankNeitherReceivesNorSends) {
  Net net(3);
  net.network.kill(1, after(microseconds(5)));
  net.receive(1, 0);
  net.send(0, 1, 1);
  net.receive(2, 1, 8);
  net.receive(2, 1, 9);
  net.send(1, 2, 1);  // before the death: arrives
  net.network.clock().sleep_until(after(microseconds(6)));
  net.send(1, 2, 1);  // after it
  net.run();
  EXPECT_FALSE(net.network.is_alive(1));
  EXPECT_THAT(net.log(1).cookies, ElementsAre());
  EXPECT_THAT(net.log(2).cookies, ElementsAre(8));
  EXPECT_THAT(net.log(2).errors, ElementsAre());  // nobody is told
}

TEST(SimNetwork, OthersAreToldOfADeath) {
  Net net(3, {.detection = microseconds(100)});
  net.network.kill(1, after(microseconds(5)));
  net.receive(2, 1);
  net.receive(2, 0);
  net.run();
  EXPECT_THAT(net.log(2).errors, ElementsAre(ErrorCode::kPeerLost));
  EXPECT_EQ(net.network.clock().now(), after(microseconds(105)));
}

// Those that were sent before vanish; the others fail, but not from inside the call that sends.
TEST(SimNetwork, SendsToTheLostFail) {
  Net net(3, {.detection = microseconds(100)});
  net.network.kill(1, after(microseconds(5)));
  net.network.clock().sleep_until(after(microseconds(50)));
  net.send(0, 1, 1);
  net.run();
  const std::vector<std::byte> data(1);
  Transport& sender = *net.seats[0];
  EXPECT_FALSE(sender.post_send(1, {}, data, net.log(0), 0));
  EXPECT_THAT(net.log(0).errors, ElementsAre());
  net.run();
  EXPECT_THAT(net.log(0).errors, ElementsAre(ErrorCode::kPeerLost));
  EXPECT_FALSE(sender.post_send(1, {}, data, net.log(0), 0));
  sender.cancel(net.log(0), {});
  net.run();
  EXPECT_EQ(net.log(0).errors.size(), 1u);
}

TEST(SimNetwork, StallAndPartitionPutMessagesOff) {
  Net net(3);
  net.network.stall(1, after(microseconds(5)), after(microseconds(40)));
  net.network.partition({2}, after(microseconds(5)), after(microseconds(70)));
  for (const int to : {1, 2}) {
    for (const std::size_t bytes : {1, 2}) {
      net.receive(to, 0);
      net.send(0, to, bytes);
    }
  }
  net.run();
  EXPECT_THAT(net.log(1).sizes, ElementsAre(1, 2));
  EXPECT_GE(net.log(1).times.front(), microseconds(40));
  EXPECT_LT(net.log(1).times.back(), microseconds(41));
  EXPECT_THAT(net.log(2).sizes, ElementsAre(1, 2));
  EXPECT_GE(net.log(2).times.front(), microseconds(70));
}

TEST(SimNetwork, WaitMakesEventsHappenUntilItsOwnOrTheDeadline) {
  Net net(2);
  net.receive(1, 0);
  net.send(0, 1, 0);
  net.seats[1]->wait(after(microseconds(4)));  // too early
  EXPECT_EQ(net.network.clock().now(), after(microseconds(4)));
  EXPECT_THAT(net.log(1).cookies, ElementsAre());
  net.seats[1]->wait(TimePoint::max());
  EXPECT_EQ(net.network.clock().now(), after(microseconds(10)));
  EXPECT_THAT(net.log(1).cookies, ElementsAre(0));
  EXPECT_THROW(net.seats[1]->wait(TimePoint::max()), Error);  // nothing is left: not for ever
}

TEST(RunSimulated, RunsBlockingCodeInVirtualTime) {
  std::vector<Duration> ends(4);
  run_simulated({.topology = Topology::uniform(4)},
                [&](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
                  Communicator comm(std::move(transport), clock, {});
                  clock.sleep_until(clock.now() + seconds(rank));
                  comm.barrier().wait();
                  std::vector<std::int32_t> data(1000, rank + 1);
                  comm.all_reduce(data, ReduceOp::kSum).wait();
                  EXPECT_THAT(data, ::testing::Each(10)) << "rank " << rank;
                  ends[static_cast<std::size_t>(rank)] = clock.now().time_since_epoch();
                });
  for (const Duration end : ends) {
    EXPECT_GT(end, seconds(3));  // the last to come
    EXPECT_LT(end, seconds(3.001));
  }
}

TEST(RunSimulated, IsTheSameEachTime) {
  const auto order_of = [](std::uint64_t seed) {
    std::vector<int> order;
    run_simulated({.topology = Topology::uniform(8), .seed = seed, .jitter = 3},
                  [&](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
                    Communicator comm(std::move(transport), clock, {});
                    for (int i = 0; i < 20; ++i) {
                      comm.barrier().wait();
                      order.push_back(rank);
                    }
                  });
    return order;
  };
  EXPECT_EQ(order_of(3), order_of(3));
  EXPECT_NE(order_of(3), order_of(4));
}

// The call of an absent member ends at its deadline, after no real time at all.
TEST(RunSimulated, TimedOutWaitTakesVirtualTimeOnly) {
  run_simulated({.topology = Topology::uniform(3)},
                [](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
                  Communicator comm(std::move(transport), clock, {});
                  if (rank == 2) return;
                  try {
                    comm.barrier({.timeout = seconds(1'000)}).wait();
                    ADD_FAILURE() << "rank " << rank;
                  } catch (const Error& error) {
                    EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
                  }
                  EXPECT_EQ(clock.now(), after(seconds(1'000)));
                });
}

TEST(RunSimulated, NamesRanksThatWaitForEver) {
  try {
    run_simulated({.topology = Topology::uniform(4)},
                  [](int rank, std::unique_ptr<Transport> transport, Clock&) {
                    if (rank % 2 == 1) transport->wait(TimePoint::max());
                  });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.ranks(), ElementsAre(1, 3));
    EXPECT_THAT(error.what(), HasSubstr("2 of 4 ranks"));
  }
}

TEST(RunSimulated, ThrowsWhatABodyThrewFirst) {
  try {
    run_simulated({.topology = Topology::uniform(3)},
                  [](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
                    Communicator comm(std::move(transport), clock, {});
                    clock.sleep_until(after(seconds(3 - rank)));
                    if (rank > 0) throw Error(ErrorCode::kIo, "rank " + std::to_string(rank));
                    comm.barrier().wait();
                  });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 2");
  }
}

TEST(RunSimulated, DeadRankIsLeftAndTheOthersAreTold) {
  std::vector<int> told;
  run_simulated(
      {.topology = Topology::uniform(4), .detection = seconds(1.5)},
      [&](int rank, std::unique_ptr<Transport> transport, Clock& clock) {
        Communicator comm(std::move(transport), clock, {});
        clock.sleep_until(after(seconds(1)));
        EXPECT_NE(rank, 2) << "it died in its sleep";
        try {
          comm.barrier().wait();
        } catch (const Error& error) {
          if (error.code() == ErrorCode::kPeerLost) told.push_back(rank);
        }
      },
      [](SimNetwork& network) { network.kill(2, after(seconds(0.5))); });
  EXPECT_THAT(told, ::testing::IsSupersetOf({0, 3}));  // those that hear from rank 2 themselves
}

// A fiber may wait inside a catch block while another one handles an exception of its own.
TEST(RunSimulated, KeepsTheExceptionsOfRanksApart) {
  std::vector<std::string> caught(2);
  run_simulated({.topology = Topology::uniform(2)},
                [&](int rank, std::unique_ptr<Transport>, Clock& clock) {
                  try {
                    try {
                      throw Error(ErrorCode::kIo, "of rank " + std::to_string(rank));
                    } catch (const Error&) {
                      clock.sleep_until(clock.now() + seconds(rank == 0 ? 1 : 2));
                      throw;
                    }
                  } catch (const Error& error) {
                    caught[static_cast<std::size_t>(rank)] = error.what();
                  }
                });
  EXPECT_THAT(caught, ElementsAre("of rank 0", "of rank 1"));
}

}  // namespace
}  // namespace motley
