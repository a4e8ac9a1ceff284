// Shows that every transport keeps the contract of comm/transport/transport.h: one test body, run
// on each. Most tests drive all ranks from one thread, so that they are deterministic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "test/support/transports.h"

namespace motley::test {
namespace {

using testing::ElementsAre;

std::size_t index(int i) { return static_cast<std::size_t>(i); }

class TransportContract : public testing::TestWithParam<std::string> {
 protected:
  void make(int size) {
    Options options;
    options.segment_bytes = 64 << 10;  // half the default, so that bounds are reached sooner
    if (GetParam() == "inproc") {
      network_ = std::make_unique<InprocNetwork>(size);
      for (int rank = 0; rank < size; ++rank) ranks_.push_back(network_->transport(rank));
      return;
    }
    const bool fetches = GetParam() == "ucx_rendezvous";
    if (fetches) options.ucx_rendezvous = 0;
    try {
      ranks_ = make_transports(fetches ? "ucx" : GetParam(), size, options);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnavailable) throw;
      GTEST_SKIP() << error.what();
    }
  }
  Transport& at(int rank) { return *ranks_[index(rank)]; }
  // Polls all ranks until `done`.
  bool poll_until(const std::function<bool()>& done) {
    const TimePoint deadline = Clock::real().now() + kPatience;
    while (!done()) {
      if (Clock::real().now() > deadline) return false;
      for (auto& it : ranks_) it->poll();
    }
    return true;
  }
  // Sends a message with call number `call` all the way, after which everything before it that
  // was to arrive has arrived.
  void flush(int from, int to, std::uint32_t call) {
    NotingSink sink;
    at(to).post_recv(from, tag_of(call), sink, 0);
    at(from).post_send(to, tag_of(call), {}, sink, 1);
    ASSERT_TRUE(poll_until([&] { return sink.receives.size() == 1; }));
  }
  // Sends messages of the largest size from 0 to 1 until one has to wait. Returns how many were
  // taken before that; `buffer` is what waits.
  std::uint32_t fill(std::uint32_t call, const std::vector<std::byte>& buffer, Sink& sink) {
    std::uint32_t taken = 0;
    while (taken < 4096 && at(0).post_send(1, tag_of(call), buffer, sink, taken)) ++taken;
    EXPECT_LT(taken, 4096u) << "no bound on what a receiver has not asked for";
    return taken;
  }

  std::unique_ptr<InprocNetwork> network_;
  std::vector<std::unique_ptr<Transport>> ranks_;
};
// By rendezvous every sender waits to be fetched, and what it offered is fetched nonetheless.
class EagerContract : public TransportContract {};
// Threads of one process share the memory in which everything is kept.
class ProcessContract : public TransportContract {};

TEST_P(TransportContract, KeepsTheOrderWithinALane) {
  make(2);
  if (IsSkipped()) return;
  NotingSink out, in;
  constexpr std::uint32_t kMessages = 500;  // more than any queue holds
  std::vector<std::vector<std::byte>> data;
  for (std::uint32_t i = 0; i < kMessages; ++i) data.push_back(pattern(i * 7, i));
  for (std::uint32_t i = 0; i < kMessages; ++i) {  // two lanes, interleaved
    at(1).post_recv(0, tag_of(5, i % 2), in, i);
    at(0).post_send(1, tag_of(5, i % 2), data[i], out, i);
  }
  ASSERT_TRUE(poll_until([&] { return in.receives.size() == kMessages; }));
  for (const auto& message : in.receives) {
    EXPECT_EQ(message.data, data[message.cookie]) << "message " << message.cookie;
    EXPECT_EQ(message.tag.piece, message.cookie % 2);
    EXPECT_EQ(message.tag.fingerprint, tag_of(5).fingerprint);
  }
}

TEST_P(TransportContract, KeepsMessagesThatNobodyHasAskedForYet) {
  make(3);
  if (IsSkipped()) return;
  NotingSink out, in;
  const auto a = pattern(100, 1), b = pattern(0, 2), c = pattern(3000, 3);
  at(0).post_send(1, tag_of(1), a, out, 0);
  at(0).post_send(1, tag_of(2), b, out, 0);
  at(2).post_send(1, tag_of(1), c, out, 0);
  flush(0, 1, 9);
  flush(2, 1, 9);
  at(1).post_recv(0, tag_of(2), in, 12);  // not in the order of sending
  at(1).post_recv(2, tag_of(1), in, 21);
  at(1).post_recv(0, tag_of(1), in, 11);
  EXPECT_TRUE(in.untouched()) << "never from inside post_recv";
  ASSERT_TRUE(poll_until([&] { return in.receives.size() == 3; }));
  for (const auto& message : in.receives) {
    EXPECT_EQ(message.data, message.cookie == 11 ? a : message.cookie == 12 ? b : c);
  }
}

TEST_P(TransportContract, CarriesEverySizeInBothDirectionsAtOnce) {
  make(2);
  if (IsSkipped()) return;
  const std::size_t max = at(0).max_message_bytes();
  EXPECT_GE(max, 64u << 10);
  const std::vector<std::size_t> sizes{0, 1, 7, 63, 64, 65, 4096, 8191, 30000, max - 1, max, 0};
  std::vector<std::vector<std::byte>> data[2];
  NotingSink sinks[2];
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    for (int rank : {0, 1}) {
      data[rank].push_back(pattern(sizes[i], 2 * i + static_cast<std::uint32_t>(rank)));
      at(rank).post_recv(1 - rank, tag_of(3), sinks[rank], i);
      at(rank).post_send(1 - rank, tag_of(3), data[rank][i], sinks[rank], i);
    }
  }
  ASSERT_TRUE(poll_until([&] {
    return sinks[0].receives.size() == sizes.size() && sinks[1].receives.size() == sizes.size();
  }));
  for (int rank : {0, 1}) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(sinks[rank].receives[i].data, data[1 - rank][i]) << sizes[i] << " bytes";
    }
  }
}

TEST_P(EagerContract, MakesASenderWaitForRoomAndThenGoOn) {
  make(2);
  if (IsSkipped()) return;
  NotingSink out, in;
  const auto data = pattern(at(0).max_message_bytes(), 4);
  const std::uint32_t taken = fill(1, data, out);
  const auto last = pattern(10, 5);
  EXPECT_FALSE(at(0).post_send(1, tag_of(1), last, out, taken + 1)) << "may not overtake";
  EXPECT_TRUE(out.untouched());
  for (std::uint32_t i = 0; i <= taken + 1; ++i) at(1).post_recv(0, tag_of(1), in, i);
  ASSERT_TRUE(poll_until([&] { return in.receives.size() == taken + 2 && out.sends.size() == 2; }));
  EXPECT_THAT(out.sends, ElementsAre(taken, taken + 1));
  for (std::uint32_t i = 0; i <= taken; ++i) ASSERT_EQ(in.receives[i].data, data) << i;
  EXPECT_EQ(in.receives.back().data, last);
}

// A root that broadcasts in a loop must not fill the memory of a rank that has not asked yet.
TEST_P(ProcessContract, BoundsWhatIsKeptForARankThatPollsButDoesNotAsk) {
  make(2);
  if (IsSkipped()) return;
  NotingSink out;
  const auto data = pattern(at(0).max_message_bytes(), 6);
  constexpr std::size_t kBound = 128 << 20;
  std::size_t sent = 0;
  std::uint32_t cookie = 0;
  bool waits = false;
  while (sent < kBound && !waits) {
    if (at(0).post_send(1, tag_of(1), data, out, cookie++)) {
      sent += data.size();
    } else {  // has it to wait for the receiver's poll, or for its asking?
      for (int i = 0; i < 2000 && out.sends.empty(); ++i) {
        at(1).poll();
        at(0).poll();
      }
      waits = out.sends.empty();
      sent += data.size();
      out.sends.clear();
    }
  }
  EXPECT_TRUE(waits) << sent << " bytes were taken";
  NotingSink in;
  for (std::uint32_t i = 0; i < cookie; ++i) at(1).post_recv(0, tag_of(1), in, i);
  EXPECT_TRUE(poll_until([&] { return in.receives.size() == cookie; })) << in.receives.size();
}

TEST_P(EagerContract, TouchesNeitherSinkNorBufferAfterCancel) {
  make(2);
  if (IsSkipped()) return;
  NotingSink in, other;
  {  // a receive: the message comes later and is dropped
    NotingSink gone;
    at(1).post_recv(0, tag_of(1), gone, 0);
    at(1).cancel(gone, tag_of(1).call);
    at(0).post_send(1, tag_of(1), pattern(50, 1), other, 0);
    flush(0, 1, 2);
    EXPECT_TRUE(gone.untouched());
  }
  at(1).post_recv(0, tag_of(1), in, 0);  // of the closed call: nothing may match it
  flush(0, 1, 3);
  EXPECT_TRUE(in.untouched());
  at(1).cancel(in, tag_of(1).call);

  NotingSink out;
  auto data = std::make_unique<std::vector<std::byte>>(pattern(at(0).max_message_bytes(), 2));
  const auto copy = *data;
  const std::uint32_t taken = fill(4, *data, out);
  at(0).cancel(out, tag_of(4).call);
  std::fill(data->begin(), data->end(), std::byte{0});
  data.reset();  // AddressSanitizer would see a later read
  for (std::uint32_t i = 0; i < taken; ++i) at(1).post_recv(0, tag_of(4), in, i);
  flush(0, 1, 5);
  EXPECT_TRUE(out.untouched());
  for (const auto& message : in.receives) EXPECT_EQ(message.data, copy) << "changed on the way";
}

TEST_P(TransportContract, DropsStaleGroups) {
  make(2);
  if (IsSkipped()) return;
  const auto tag = [](std::uint64_t id) {
    return Tag{.call = {.group = {.id = GroupTag::kControllerBit | id}, .number = 0}};
  };
  NotingSink out, in;
  at(0).post_send(1, tag(1), pattern(10, 1), out, 0);  // kept, then stale
  at(0).post_send(1, tag(7), pattern(10, 7), out, 0);  // kept, not stale
  flush(0, 1, 1);
  at(1).retire_before(tag(5).call.group);
  at(0).post_send(1, tag(4), pattern(10, 4), out, 0);  // stale on arrival
  flush(0, 1, 2);
  for (std::uint32_t id : {1, 4, 7}) at(1).post_recv(0, tag(id), in, id);
  flush(0, 1, 3);
  ASSERT_EQ(in.receives.size(), 1u);
  EXPECT_EQ(in.receives[0].cookie, 7u);
  EXPECT_EQ(in.receives[0].data, pattern(10, 7));
}

TEST_P(TransportContract, FailsOperationsWithALostPeer) {
  make(3);
  if (IsSkipped()) return;
  NotingSink before, after, sends, in;
  const auto data = pattern(at(0).max_message_bytes(), 1);
  at(1).post_send(0, tag_of(8), pattern(20, 8), in, 0);  // sent before its death: still good
  flush(1, 0, 7);
  at(0).post_recv(1, tag_of(1), before, 3);
  const std::uint32_t taken = fill(2, data, sends);
  at(0).report_lost(1, "killed by signal 9");
  at(0).report_lost(1, "its lease ran out");
  at(0).post_recv(1, tag_of(8), in, 8);
  at(0).post_recv(1, tag_of(2), after, 4);
  const auto done = [&] {
    at(0).poll();
    return before.failures.size() == 1 && after.failures.size() == 1 && in.receives.size() == 1 &&
           sends.failures.size() + sends.sends.size() == 1;
  };
  ASSERT_TRUE(poll_until(done));
  for (const NotingSink* sink : {&before, &after}) {
    EXPECT_EQ(sink->failures[0].code, ErrorCode::kPeerLost);
    EXPECT_THAT(sink->failures[0].ranks, ElementsAre(1));
    EXPECT_THAT(sink->failures[0].text, testing::HasSubstr("killed by signal 9"));
  }
  if (GetParam() != "inproc") {  // where a send to a lost peer counts as taken
    ASSERT_EQ(sends.failures.size(), 1u);
    EXPECT_EQ(sends.failures[0].cookie, taken);
    NotingSink late;
    EXPECT_FALSE(at(0).post_send(1, tag_of(9), data, late, 5));
    EXPECT_TRUE(late.untouched()) << "never from inside post_send";
    ASSERT_TRUE(poll_until([&] { return late.failures.size() == 1; }));
    EXPECT_EQ(late.failures[0].code, ErrorCode::kPeerLost);
  }
  flush(0, 2, 1);  // the living go on
  flush(2, 0, 1);
}

TEST_P(TransportContract, WaitEndsAtItsTimeOrWhenWoken) {
  make(2);
  if (IsSkipped()) return;
  const TimePoint start = Clock::real().now();
  while (Clock::real().now() < start + seconds(0.02)) at(0).wait(start + seconds(0.02));
  at(0).wait(start);  // already past
  // Before or during the wait: either ends it. A missed wake would last kPatience.
  for (int i = 0; i < 20; ++i) {
    std::thread waker([&] { at(0).wake(); });
    at(0).wait(start + kPatience);
    waker.join();
  }
  std::thread waker([&] { at(0).report_lost(1, "gone"); });
  NotingSink in;
  at(0).post_recv(1, tag_of(1), in, 0);
  EXPECT_TRUE(run_until(at(0), [&] { return in.failures.size() == 1; }));
  waker.join();
  EXPECT_LT(Clock::real().now() - start, kPatience / 2);
}

// Every rank is a thread that sleeps while nothing moves: a lost wake-up would stop the exchange.
TEST_P(TransportContract, AnswersBetweenSleepingThreads) {
  make(2);
  if (IsSkipped()) return;
  const std::uint32_t rounds =
      GetParam() == "ucx_rendezvous" ? 500 : 2000;  // of three trips, or one
  std::atomic<int> bad{0};
  const auto body = [&](int rank) {
    for (std::uint32_t i = 0; i < rounds; ++i) {
      NotingSink sink;
      at(rank).post_recv(1 - rank, tag_of(i), sink, 0);
      const auto data = pattern(i % 300, i);
      const auto send = [&] { return at(rank).post_send(1 - rank, tag_of(i), data, sink, 0); };
      bool sent = rank == 0 && send();
      if (!run_until(at(rank), [&] { return sink.receives.size() == 1; })) ++bad;
      if (rank == 1) sent = send();
      if (!run_until(at(rank), [&] { return sent || sink.sends.size() == 1; })) ++bad;
      if (sink.receives.empty() || sink.receives[0].data != data) ++bad;
      if (bad != 0) return;
    }
  };
  std::thread one(body, 1);
  body(0);
  one.join();
  EXPECT_EQ(bad, 0);
}

// Four threads send each other messages of random sizes, far more than fit at once.
TEST_P(TransportContract, CarriesAllToAllTrafficOfThreads) {
  make(4);
  if (IsSkipped()) return;
  constexpr std::uint32_t kMessages = 60;
  const auto seed = [](int from, int to, std::uint32_t i) {
    return (static_cast<std::uint64_t>(from) * 16 + index(to)) * 1000 + i;
  };
  const auto message = [&](int from, int to, std::uint32_t i) {
    std::mt19937_64 random(seed(from, to, i));
    const std::size_t max = at(0).max_message_bytes() / 4;
    return pattern(random() % 4 == 0 ? random() % max : random() % 200, seed(from, to, i));
  };
  std::atomic<int> bad{0};
  const auto body = [&](int rank) {
    NotingSink out;
    std::vector<NotingSink> in(4);
    std::vector<std::vector<std::byte>> data;
    std::size_t waiting = 0;
    data.reserve(4 * kMessages);
    for (std::uint32_t i = 0; i < kMessages; ++i) {
      for (int peer = 0; peer < 4; ++peer) {
        if (peer == rank) continue;
        at(rank).post_recv(peer, tag_of(1, i % 3), in[index(peer)], i);
        data.push_back(message(rank, peer, i));
        if (!at(rank).post_send(peer, tag_of(1, i % 3), data.back(), out, i)) ++waiting;
      }
    }
    const auto done = [&] {
      std::size_t arrived = 0;
      for (const NotingSink& sink : in) arrived += sink.receives.size();
      return arrived == 3 * kMessages && out.sends.size() == waiting;
    };
    if (!run_until(at(rank), done)) ++bad;
    for (int peer = 0; peer < 4; ++peer) {
      for (const auto& got : in[index(peer)].receives) {
        if (got.data != message(peer, rank, got.cookie)) ++bad;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
}

const auto kName = [](const testing::TestParamInfo<std::string>& it) { return it.param; };
INSTANTIATE_TEST_SUITE_P(Transports, TransportContract,
                         testing::Values("inproc", "shm", "ucx", "ucx_rendezvous", "shm_ucx"),
                         kName);
INSTANTIATE_TEST_SUITE_P(Transports, EagerContract,
                         testing::Values("inproc", "shm", "ucx", "shm_ucx"), kName);
INSTANTIATE_TEST_SUITE_P(Transports, ProcessContract,
                         testing::Values("shm", "ucx", "ucx_rendezvous", "shm_ucx"), kName);

}  // namespace
}  // namespace motley::test
