// A controller that is started in the place of one that died hears from the ranks what the store
// held and what of supplies was counted: each number is counted once all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "comm/control/client_core.h"
#include "comm/control/controller_core.h"

namespace motley::test {
namespace {

using testing::Each;

struct Packet {
  int rank;
  bool to_controller;
  Message message;
};

// Ranks and a controller whose messages a test delivers, and loses where the controller dies.
class Job {
 public:
  Job(int size, unsigned seed) : random_(seed), core_(config(size), now_) {
    for (int rank = 0; rank < size; ++rank) {
      clients_.emplace_back(ClientConfig{.rank = rank, .size = size, .token = "t"}, now_);
    }
    settle();
  }

  ClientCore& client(int rank) { return clients_[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(clients_.size()); }
  unsigned random(unsigned below) { return static_cast<unsigned>(random_() % below); }

  // One message, if there is one, or a tenth of a second.
  void step() {
    collect();
    if (flight_.empty() || random(8) == 0) return pass_time();
    const auto place = static_cast<std::ptrdiff_t>(random(static_cast<unsigned>(flight_.size())));
    const Packet packet = flight_[static_cast<std::size_t>(place)];
    flight_.erase(flight_.begin() + place);
    deliver(packet);
  }
  void settle() {
    for (int i = 0; i < 40; ++i) {
      pass_time();
      for (collect(); !flight_.empty(); collect()) {
        for (const Packet& packet : std::exchange(flight_, {})) deliver(packet);
      }
    }
  }
  void restart() {
    flight_.clear();
    core_ = ControllerCore(config(size()), now_);
  }
  Message ask(int rank, Message request) {
    const Lane lane = *lane_of(request.type);
    client(rank).request(std::move(request), now_);
    settle();
    const Message* reply = client(rank).reply(lane);
    return reply == nullptr ? Message{} : *reply;
  }
  TimePoint now() const { return now_; }

 private:
  ControllerConfig config(int size) {
    return {.size = size, .token = "t", .lease = seconds(100), .epoch = ++epoch_};
  }
  void pass_time() {
    now_ += seconds(0.1);
    core_.on_time(now_);
    for (ClientCore& each : clients_) each.on_time(now_);
  }
  void deliver(const Packet& packet) {
    if (packet.to_controller) {
      core_.on_message(std::to_string(packet.rank), packet.message, now_);
    } else {
      client(packet.rank).on_message(packet.message, now_);
    }
  }
  void collect() {
    for (auto& output : core_.take_output()) {
      flight_.push_back({std::stoi(output.to), false, std::move(output.message)});
    }
    for (int rank = 0; rank < size(); ++rank) {
      for (Message& message : client(rank).take_output()) {
        flight_.push_back({rank, true, std::move(message)});
      }
    }
  }

  std::mt19937 random_;
  std::uint32_t epoch_ = 0;
  TimePoint now_{seconds(100)};
  ControllerCore core_;
  std::vector<ClientCore> clients_;
  std::vector<Packet> flight_;
};

struct Taker {
  bool waits = false;
  bool wants = false;
  std::vector<Range> held;
  std::vector<Range> counted;  // and not told yet
};

TEST(Recall, ASupplyIsCountedOnceThoughTheControllerDiesAtAnyMoment) {
  for (unsigned seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    constexpr std::int64_t kCount = 60;
    Job job(1 + static_cast<int>(seed % 4), seed);
    std::vector<Taker> takers(static_cast<std::size_t>(job.size()));
    std::vector<int> times(kCount);
    for (int rank = 0; rank < job.size(); ++rank) {
      job.ask(rank, {.type = MessageType::kSupplyOpen,
                     .number = kCount,
                     .key = "s",
                     .value = encode_ranges({{{0, kCount}}})});
    }
    int restarts = 0;
    bool over = false;
    for (int step = 0; !over && step < 40'000; ++step) {
      if (job.random(150) == 0 && restarts < 8) {
        job.restart();
        ++restarts;
      }
      job.step();
      const int rank = static_cast<int>(job.random(static_cast<unsigned>(job.size())));
      Taker& taker = takers[static_cast<std::size_t>(rank)];
      if (!taker.waits) {
        if (!taker.held.empty()) {
          const Range part = taker.held.back();
          taker.held.pop_back();
          for (std::int64_t i = part.begin; i < part.end; ++i) ++times[static_cast<std::size_t>(i)];
          taker.counted.push_back(part);
        }
        taker.waits = true;
        taker.wants = taker.held.empty();
        job.client(rank).request({.type = MessageType::kSupplyTake,
                                  .number = taker.wants ? 1 + job.random(5) : 0,
                                  .key = "s",
                                  .value = encode_ranges({taker.counted, taker.held})},
                                 job.now());
        continue;
      }
      const Message* reply = job.client(rank).reply(Lane::kSupply);
      if (reply == nullptr) continue;
      ASSERT_EQ(reply->type, MessageType::kValue) << reply->value;
      taker.waits = false;
      taker.counted.clear();
      over = reply->number == 0;
      // Single numbers, so that some of what it got is counted and told, and some not.
      const auto lists = decode_ranges(reply->value, 2, kCount);
      for (const Range& range : lists.at(0)) {
        for (std::int64_t i = range.begin; i < range.end; ++i) taker.held.push_back({i, i + 1});
      }
    }
    ASSERT_TRUE(over);
    ASSERT_THAT(times, Each(1));
  }
}

TEST(Recall, TheStoreHoldsWhatRanksHadSetAndCounted) {
  Job job(3, 1);
  EXPECT_EQ(job.ask(0, {.type = MessageType::kSet, .key = "k", .value = "v"}).type,
            MessageType::kOk);
  EXPECT_EQ(job.ask(1, {.type = MessageType::kAdd, .number = 5, .key = "c"}).number, 5);
  EXPECT_EQ(job.ask(0, {.type = MessageType::kAdd, .number = 2, .key = "c"}).number, 7);
  job.restart();
  EXPECT_EQ(job.ask(2, {.type = MessageType::kAdd, .number = 1, .key = "c"}).number, 8);
  EXPECT_EQ(job.ask(2, {.type = MessageType::kGet, .key = "k"}).value, "v");
}

TEST(Recall, WhatARankRemembersSurvivesTheWire) {
  Recollection all;
  all.values["a"] = std::string("b\0c", 3);
  all.counters["n"] = -4;
  all.supplies["s"] = {.count = 9, .whole = true, .uncounted = {{1, 3}, {5, 9}}, .holds = {{1, 2}}};
  all.supplies["empty"] = {};
  const std::string bytes = encode(all);
  EXPECT_EQ(decode_recollection(bytes), all);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_recollection(bytes.substr(0, size)), std::nullopt) << size;
  }
  EXPECT_EQ(decode_recollection(bytes + "x"), std::nullopt);
  // What is too long is left out, and the rest is there.
  all.values["long"] = std::string(kMaxValueBytes, 'x');
  const auto some = decode_recollection(encode(all));
  ASSERT_TRUE(some);
  all.values.erase("long");
  EXPECT_EQ(*some, all);
}

}  // namespace
}  // namespace motley::test
