// The control plane over real sockets on 127.0.0.1: ranks find each other, strangers are refused,
// deaths are told. Ranks are threads or forked processes; nothing sleeps to synchronise.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <future>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "comm/control/client.h"
#include "comm/control/message.h"
#include "comm/control/zmq_channel.h"
#include "comm/controller.h"
#include "comm/error.h"
#include "test/comm/forked.h"
#include "test/support/errors.h"

namespace motley {
namespace {

using test::expect_error;
using testing::Each;
using testing::HasSubstr;

constexpr Duration kSoon = seconds(20);  // never reached where the code is right

TimePoint soon() { return Clock::real().now() + kSoon; }

Options options_of(const std::string& controller, int rank, int size) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.controller = controller;
  options.token = "open sesame";
  options.join_timeout = kSoon;
  options.heartbeat = seconds(0.02);
  return options;
}

ControllerServer server_of(int size, Duration lease = seconds(10)) {
  return ControllerServer({.size = size, .token = "open sesame", .lease = lease});
}

std::unique_ptr<ControlClient> connect(const ControllerServer& server, int rank, int size) {
  return connect_control(options_of(server.address(), rank, size), Clock::real());
}

// The first loss that a client hears of.
struct FirstLoss {
  explicit FirstLoss(ControlClient& client_) : client(client_) {
    client.on_lost([this](int rank, const std::string& why) {
      if (!told) heard.set_value({rank, why});
      told = true;
    });
  }
  ~FirstLoss() { client.on_lost({}); }
  std::pair<int, std::string> wait() {
    auto result = heard.get_future();
    if (result.wait_for(kSoon) != std::future_status::ready) return {-1, "nothing was heard"};
    return result.get();
  }
  ControlClient& client;
  std::promise<std::pair<int, std::string>> heard;
  bool told = false;
};

TEST(Message, SurvivesTheWire) {
  const Message message{.type = MessageType::kGroup,
                        .epoch = 3,
                        .seq = ~std::uint64_t{0},
                        .rank = -1,
                        .count = 5,
                        .number = -7,
                        .tag = {.id = GroupTag::kControllerBit | 9, .epoch = 3, .attempt = 2},
                        .ranks = {0, 4, 65535},
                        .key = "address/5",
                        .value = std::string("\0\xff", 2)};
  EXPECT_EQ(decode(encode(message)), message);
  EXPECT_EQ(decode(encode(Message{})), Message{});
}

// Random bytes, and good messages with bytes changed, cut off or added: refused or decoded to
// something that encodes to the same bytes again. Under the address sanitizer this shows that no
// byte is read astray.
TEST(Message, RefusesWhatIsMalformed) {
  std::mt19937_64 random(7);
  const std::vector<std::byte> good =
      encode({.type = MessageType::kGroup, .ranks = {1, 2, 3}, .key = "key", .value = "value"});
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes = i % 4 == 0 ? std::vector<std::byte>(random() % 120) : good;
    const std::size_t changes = i % 4 == 0 ? bytes.size() : 1 + random() % 3;
    for (std::size_t j = 0; j < changes && !bytes.empty(); ++j) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (i % 4 == 1) bytes.resize(random() % (2 * bytes.size()));
    const auto message = decode(bytes);
    if (message) {
      ASSERT_EQ(encode(*message), bytes) << "trial " << i;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, 100'000);
  EXPECT_EQ(decode({}), std::nullopt);
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(decode(ConstBytes(good).first(size)), std::nullopt) << size;
  }
}

TEST(Control, LetsRanksFindEachOther) {
  const int size = 8;
  ControllerServer server = server_of(size);
  std::vector<std::string> seen(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto control = connect(server, rank, size);
      control->set("address/" + std::to_string(rank),
                   std::string(static_cast<std::size_t>(rank), 'x'));
      for (int peer = 0; peer < size; ++peer) {
        seen[static_cast<std::size_t>(rank)] +=
            control->get("address/" + std::to_string(peer), soon());
      }
      control->add("arrived", 1);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(seen, Each(std::string(28, 'x')));  // 0 + 1 + … + 7
}

TEST(Control, WaitsForAKeyUntilTheDeadline) {
  ControllerServer server = server_of(1);
  const auto control = connect(server, 0, 1);
  expect_error(ErrorCode::kTimeout, {"address/5"},
               [&] { control->get("address/5", Clock::real().now() + seconds(0.05)); });
  expect_error(ErrorCode::kTimeout, {"address/5"},
               [&] { control->get("address/5", Clock::real().now() - seconds(1)); });
  control->set("address/5", "");  // an empty value is a value
  EXPECT_EQ(control->get("address/5", soon()), "");
}

TEST(Control, KeepsTheLastValueAndCounts) {
  ControllerServer server = server_of(1);
  const auto control = connect(server, 0, 1);
  control->set("key", "one");
  control->set("key", "two");
  EXPECT_EQ(control->get("key", soon()), "two");
  EXPECT_EQ(control->add("counter", 5), 5);
  EXPECT_EQ(control->add("counter", -7), -2);
  EXPECT_EQ(control->get("counter", soon()), "-2");
  expect_error(ErrorCode::kInvalid, {"key"}, [&] { control->add("key", 1); });
}

TEST(Control, BoundsWhatAKeyHolds) {
  ControllerServer server = server_of(1);
  const auto control = connect(server, 0, 1);
  const std::string largest(kMaxValueBytes, '\0');
  control->set("large", largest);
  EXPECT_EQ(control->get("large", soon()), largest);
  expect_error(ErrorCode::kInvalid, {std::to_string(kMaxValueBytes + 1)},
               [&] { control->set("large", largest + "x"); });
}

TEST(Control, RefusesStrangers) {
  ControllerServer server = server_of(2);
  Options wrong_token = options_of(server.address(), 0, 2);
  wrong_token.token = "open barley";
  expect_error(ErrorCode::kInvalid, {"token"},
               [&] { connect_control(wrong_token, Clock::real()); });
  expect_error(ErrorCode::kInvalid, {"3"}, [&] { connect(server, 0, 3); });
  const auto holder = connect(server, 0, 2);
  expect_error(ErrorCode::kInvalid, {"rank 0"}, [&] { connect(server, 0, 2); });
  EXPECT_EQ(holder->add("still served", 1), 1);
}

// 10,000 messages of every type by one without the token, and bytes that are no messages: counted,
// and nothing else comes of them.
TEST(Control, CountsWhatStrangersSayAndGoesOn) {
  ControllerServer server = server_of(2);
  const auto rank = connect(server, 0, 2);
  rank->set("key", "kept");
  struct Nobody final : ChannelEvents {
    void on_message(const Message&) override {}
    TimePoint on_time() override { return Clock::real().now() + seconds(1); }
    void on_exit(int) override {}
    void on_socket() override {}
    void on_broken() override {}
  } nobody;
  const auto stranger = make_zmq_channel(
      {.controllers = {server.address()}, .identity = "1.0000000000000001"}, Clock::real());
  stranger->start(nobody);
  constexpr std::uint64_t kMessages = 10'000;
  for (std::uint64_t i = 0; server.refused() < kMessages && i < 100 * kMessages; ++i) {
    const auto type = static_cast<MessageType>(i % (static_cast<int>(MessageType::kFenced) + 1));
    stranger->send({.type = type,
                    .epoch = static_cast<std::uint32_t>(i % 3),
                    .seq = i,
                    .rank = static_cast<int>(i % 4) - 1,
                    .count = 2,
                    .key = "key",
                    .value = "open barley"});
    if (i % 100 != 0) continue;
    ASSERT_EQ(rank->add("served", 1), static_cast<std::int64_t>(i / 100 + 1));
  }
  EXPECT_GE(server.refused(), kMessages);
  EXPECT_EQ(rank->get("key", soon()), "kept");
  const auto second = connect(server, 1, 2);  // the seat that the stranger claimed
  EXPECT_EQ(second->get("key", soon()), "kept");
}

// Programs of two releases in one job: `bytes` as the other release would have sent them.
std::vector<std::byte> of_another_version(const Message& message) {
  constexpr std::size_t kVersionOffset = 4;  // behind the magic
  std::vector<std::byte> bytes = encode(message);
  bytes[kVersionOffset] = std::byte{99};
  return bytes;
}

TEST(Control, TellsARankOfAnotherReleaseThatItIsNoneOfIts) {
  ControllerServer server = server_of(1);
  zmq::context_t context(1);
  zmq::socket_t rank(context, zmq::socket_type::dealer);
  rank.set(zmq::sockopt::linger, 0);
  rank.set(zmq::sockopt::rcvtimeo, 20'000);
  rank.connect(server.address());
  const auto hello =
      of_another_version({.type = MessageType::kHello, .rank = 0, .value = "open sesame"});
  ASSERT_TRUE(rank.send(zmq::buffer(hello), zmq::send_flags::none));
  zmq::message_t answer;
  ASSERT_TRUE(rank.recv(answer, zmq::recv_flags::none));
  EXPECT_LE(answer.size(), hello.size()) << "a stranger must not make us send more than it does";
  EXPECT_EQ(connect(server, 0, 1)->add("served", 1), 1);
}

TEST(Control, NamesTheReleaseOfAControllerThatIsNotItsOwn) {
  zmq::context_t context(1);
  zmq::socket_t controller(context, zmq::socket_type::router);
  controller.set(zmq::sockopt::linger, 0);
  controller.set(zmq::sockopt::rcvtimeo, 20'000);
  controller.bind("tcp://127.0.0.1:*");
  auto rank = std::async(std::launch::async, [&] {
    const std::string address = controller.get(zmq::sockopt::last_endpoint);
    expect_error(ErrorCode::kInvalid, {"version", "99", "one release"},
                 [&] { connect_control(options_of(address, 0, 1), Clock::real()); });
  });
  zmq::message_t identity;
  zmq::message_t hello;
  ASSERT_TRUE(controller.recv(identity, zmq::recv_flags::none));
  ASSERT_TRUE(controller.recv(hello, zmq::recv_flags::none));
  ASSERT_TRUE(controller.send(identity, zmq::send_flags::sndmore));
  const auto answer = of_another_version({.type = MessageType::kRefused});
  ASSERT_TRUE(controller.send(zmq::buffer(answer), zmq::send_flags::none));
  rank.get();
}

// It speaks and speaks, and never listens: what it is told must not fill the controller's memory.
TEST(Control, KeepsFewAnswersForAStrangerThatTakesNone) {
  ControllerServer server = server_of(1);
  zmq::context_t context(1);
  zmq::socket_t stranger(context, zmq::socket_type::dealer);
  stranger.set(zmq::sockopt::rcvhwm, 1);
  stranger.set(zmq::sockopt::rcvbuf, 4096);
  stranger.set(zmq::sockopt::linger, 0);
  stranger.connect(server.address());
  const auto hello = encode({.type = MessageType::kHello, .count = 1, .value = "open barley"});
  constexpr std::uint64_t kMessages = 100'000;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(stranger.send(zmq::buffer(hello), zmq::send_flags::none));
  }
  const TimePoint deadline = soon();
  while (server.refused() < kMessages && Clock::real().now() < deadline) std::this_thread::yield();
  ASSERT_EQ(server.refused(), kMessages);
  stranger.set(zmq::sockopt::rcvtimeo, 500);
  std::uint64_t answers = 0;
  for (zmq::message_t answer; stranger.recv(answer, zmq::recv_flags::none);) ++answers;
  EXPECT_GT(answers, 0u);
  EXPECT_LT(answers, kMessages / 2) << "all but what the kernel had taken already was kept";
  EXPECT_EQ(connect(server, 0, 1)->add("served", 1), 1);
}

TEST(Control, NamesAControllerThatIsNotThere) {
  std::string address;
  {
    const ControllerServer server = server_of(1);
    address = server.address();
  }
  Options options;
  options.controller = address;
  options.join_timeout = seconds(0.1);
  expect_error(ErrorCode::kTimeout, {address}, [&] { connect_control(options, Clock::real()); });
  options.controller = "nonsense";
  expect_error(ErrorCode::kInvalid, {"nonsense"}, [&] { connect_control(options, Clock::real()); });
}

TEST(Control, NamesAControllerThatHasGone) {
  auto server = std::make_unique<ControllerServer>(server_of(1, seconds(0.1)));
  const std::string address = server->address();
  const auto control = connect(*server, 0, 1);
  std::thread killer([&] { server.reset(); });
  expect_error(ErrorCode::kPeerLost, {address}, [&] { control->get("never set", soon()); });
  killer.join();
}

TEST(Control, CannotListenWhereAnotherDoes) {
  const ControllerServer server = server_of(1);
  expect_error(ErrorCode::kIo, {server.address()},
               [&] { ControllerServer({.bind = server.address(), .size = 1}); });
  expect_error(ErrorCode::kInvalid, {"carrier pigeon"},
               [] { ControllerServer({.bind = "carrier pigeon", .size = 1}); });
  expect_error(ErrorCode::kInvalid, {"size"}, [] { ControllerServer({.size = 0}); });
}

TEST(Control, TellsOfADeathThatTheLauncherSaw) {
  ControllerServer server = server_of(3);
  const auto first = connect(server, 0, 3);
  const auto second = connect(server, 1, 3);
  FirstLoss loss(*first);
  server.report_lost(1, "killed by signal 9");
  EXPECT_EQ(loss.wait(), std::pair(1, std::string("killed by signal 9")));
  EXPECT_THAT(first->lost_ranks(), testing::ElementsAre(1));
  // The one that was declared dead learns it at its next call.
  expect_error(ErrorCode::kAborted, {"killed by signal 9"}, [&] {
    while (true) second->add("n", 1);
  });
}

TEST(Control, TellsOfDeathsBeforeAnyoneAsked) {
  ControllerServer server = server_of(3);
  server.report_lost(2, "it never started");
  const auto control = connect(server, 0, 3);
  while (control->lost_ranks().empty()) control->add("n", 1);
  FirstLoss loss(*control);
  EXPECT_EQ(loss.wait().first, 2);
}

// A controller, a child that is rank 1 until it is told to end, and this process as rank 0.
struct Family {
  Family(int size, Duration lease)
      : controller({.size = size, .token = "open sesame", .lease = lease}),
        child([&] {
          const auto client =
              connect_control(options_of(controller.address(), 1, size), Clock::real());
          client->set("child is there", "");
          client->get("end", Clock::real().now() + seconds(60));
        }),
        control(connect_control(options_of(controller.address(), 0, size), Clock::real())) {
    control->get("child is there", soon());
  }
  test::ForkedController controller;
  test::Forked child;
  std::unique_ptr<ControlClient> control;
};

TEST(ControlProcesses, SeeAKilledPeerOnTheSameHostAtOnce) {
  Family family(2, seconds(60));  // the lease cannot be what finds out
  FirstLoss loss(*family.control);
  family.control->watch_process(1, family.child.pid());
  const TimePoint killed = Clock::real().now();
  family.child.signal(SIGKILL);
  const auto [rank, why] = loss.wait();
  EXPECT_EQ(rank, 1) << why;
  EXPECT_LT(to_seconds(Clock::real().now() - killed), 1.0);  // milliseconds on an idle machine
}

TEST(ControlProcesses, SeeAStoppedPeerWhenItsLeaseEnds) {
  Family family(2, seconds(0.3));
  FirstLoss loss(*family.control);
  family.child.signal(SIGSTOP);
  const auto [rank, why] = loss.wait();
  EXPECT_EQ(rank, 1);
  EXPECT_THAT(why, HasSubstr("silent"));
}

TEST(ControlProcesses, DoNotMournAPeerThatEndedInGoodOrder) {
  Family family(3, seconds(60));
  std::vector<int> mourned;
  std::promise<void> all_heard;
  family.control->on_lost([&](int rank, const std::string&) {
    mourned.push_back(rank);
    if (rank == 2) all_heard.set_value();
  });
  family.control->watch_process(1, family.child.pid());
  family.control->set("end", "");  // the child says goodbye and exits
  EXPECT_EQ(family.child.wait(), 0);
  // Rank 2 never said goodbye, and its process has gone before it could be watched. When that is
  // heard, the news of rank 1 has been heard, too.
  family.control->watch_process(1, family.child.pid());
  family.control->watch_process(2, family.child.pid());
  EXPECT_EQ(all_heard.get_future().wait_for(kSoon), std::future_status::ready);
  family.control->on_lost({});
  EXPECT_EQ(mourned, std::vector{2});
}

}  // namespace
}  // namespace motley
