// Messages between two ranks: in order, beside collectives, on every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "comm/communicator.h"
#include "comm/error.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"

namespace motley {
namespace {

using test::expect_error;
using test::run_ranks;
using test::run_ranks_on;
using testing::Each;

using Buffer = test::Buffer<std::int32_t>;

// By transport, in host memory and in that of a device.
class SendRecv : public testing::TestWithParam<std::tuple<std::string, Memory>> {
 protected:
  void run(int ranks, const test::RankBody& body) {
    test::emulate({.host_access = test::host_access_over(std::get<0>(GetParam()))});
    run_ranks_on(std::get<0>(GetParam()), ranks, body);
  }
  Buffer place(std::vector<std::int32_t> data) {
    return {std::get<1>(GetParam()), std::move(data)};
  }
};

std::vector<std::int32_t> message(int from, int number, std::size_t n) {
  std::vector<std::int32_t> data(n);
  std::iota(data.begin(), data.end(), (from * 100 + number) * 1'000'000);
  return data;
}

TEST_P(SendRecv, MessagesArriveInOrderWhateverElseIsUnderWay) {
  run(3, [&](Communicator& comm) {
    const int to = (comm.rank() + 1) % 3;
    const int from = (comm.rank() + 2) % 3;
    const std::size_t sizes[] = {0, 1, 4'097, 200'003};
    std::vector<Buffer> out, in;
    for (int k = 0; k < 4; ++k) {
      out.push_back(place(message(comm.rank(), k, sizes[k])));
      in.push_back(place(std::vector<std::int32_t>(sizes[k], -1)));
    }
    Buffer sum = place(std::vector<std::int32_t>(1'000, 1));
    std::vector<Request> requests;
    for (auto& data : out) requests.push_back(comm.send(data, to));
    requests.push_back(comm.all_reduce(sum, ReduceOp::kSum));
    for (auto& data : in) requests.push_back(comm.recv(data, from));
    for (std::size_t i = requests.size(); i-- > 0;) requests[i].wait();
    for (int k = 0; k < 4; ++k) {
      EXPECT_TRUE(in[static_cast<std::size_t>(k)].read() == message(from, k, sizes[k])) << k;
    }
    EXPECT_THAT(sum.read(), Each(3));
  });
}

TEST_P(SendRecv, WaitAnyTellsWhichOfSeveralIsOverFirst) {
  run(3, [&](Communicator& comm) {
    if (comm.rank() != 0) {  // rank 1 sends only once rank 2's message has come
      Buffer data = place(message(comm.rank(), 0, 3));
      Buffer go = place({0});
      if (comm.rank() == 1) comm.recv(go, 0).wait();
      comm.send(data, 0).wait();
      return;
    }
    std::vector<Buffer> in;
    std::vector<Request> requests;
    for (int from = 1; from < 3; ++from) in.push_back(place(std::vector<std::int32_t>(3)));
    for (int from = 1; from < 3; ++from)
      requests.push_back(comm.recv(in[static_cast<std::size_t>(from - 1)], from));
    ASSERT_EQ(wait_any(requests), 1u);
    requests[1].wait();
    EXPECT_EQ(in[1].read(), message(2, 0, 3));
    Buffer go = place({1});
    comm.send(go, 1).wait();
    requests.pop_back();
    ASSERT_EQ(wait_any(requests), 0u);
    requests[0].wait();
    EXPECT_EQ(in[0].read(), message(1, 0, 3));
    requests.emplace_back();  // one that is over already
    requests[0] = comm.recv(in[0], 2, {.timeout = seconds(600)});
    ASSERT_EQ(wait_any(requests), 1u);
    requests[0].cancel();
  });
}

TEST_P(SendRecv, BothDirectionsOfAPairAreIndependent) {
  run(2, [&](Communicator& comm) {
    for (int round = 0; round < 20; ++round) {
      Buffer data = place(message(comm.rank(), round, 10));
      if (comm.rank() == 0) {
        comm.send(data, 1).wait();
        comm.recv(data, 1).wait();
        EXPECT_EQ(data.read(), message(1, round, 10));
      } else {
        Buffer got = place(std::vector<std::int32_t>(10));
        comm.recv(got, 0).wait();
        EXPECT_EQ(got.read(), message(0, round, 10));
        comm.send(data, 0).wait();
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, SendRecv,
                         testing::Combine(testing::ValuesIn(test::transports()),
                                          testing::Values(Memory::kHost, Memory::kDevice)));

TEST(SendRecvErrors, DisagreementOnTheCountNamesBoth) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(comm.rank() == 0 ? 5 : 6);
    if (comm.rank() == 0) return comm.send(data, 1).wait();
    expect_error(ErrorCode::kMismatch, {"send_recv #0", "count 6", "count 5", "rank 0"},
                 [&] { comm.recv(data, 0).wait(); });
  });
}

TEST(SendRecvErrors, WrongArgumentsAreRefusedAtOnce) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(5);
    const Group group({0, 1}, {.id = 5});
    const Group reserved({0, 1}, GroupTag::pair(0, 1));
    expect_error(ErrorCode::kInvalid, {"send", "itself"},
                 [&] { (void)comm.send(data, comm.rank()); });
    expect_error(ErrorCode::kInvalid, {"recv", "rank 2", "2"}, [&] { (void)comm.recv(data, 2); });
    expect_error(ErrorCode::kInvalid, {"send", "group"},
                 [&] { (void)comm.send(data, 1 - comm.rank(), {.group = &group}); });
    expect_error(ErrorCode::kInvalid, {"barrier", "2^62"},
                 [&] { (void)comm.barrier({.group = &reserved}); });
  });
}

TEST(SendRecvErrors, ALateSenderIsNamed) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(5);
    if (comm.rank() == 0) return;
    expect_error(ErrorCode::kTimeout, {"send_recv #0 from rank 0 to 1", "rank 0"},
                 [&] { comm.recv(data, 0, {.timeout = seconds(0.05)}).wait(); });
  });
}

// A message to a rank that is known to be dead fails; it is not taken for sent.
TEST(SendRecvErrors, ASendToALostRankFails) {
  run_ranks(2, [](Communicator& comm) {
    if (comm.rank() == 1) return;
    comm.report_lost(1, "a test says so");
    std::vector<float> data(5);
    expect_error(ErrorCode::kPeerLost, {"rank 1", "a test says so"},
                 [&] { comm.send(data, 1).wait(); });
  });
}

}  // namespace
}  // namespace motley
