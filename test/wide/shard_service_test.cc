// Shows that who is slow to send holds up nobody else that a keeper of shards serves. Workers are
// threads, and one of them imitates a service message by message.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/lines.h"
#include "test/wide/service_seat.h"
#include "test/wide/sharded_workers.h"
#include "test/wide/skewed_rows.h"

namespace motley::wide {
namespace {

using runtime::Letter, runtime::Lines, runtime::view_of;
using test::kBatch, test::Milestone, test::ServiceSeat, test::skewed_rows;

constexpr Duration kSecond = seconds(60);  // each wait

// Asks worker 0 for weights, but for the keys; those follow when the others have been served.
// Meanwhile it answers worker 2, as a service would.
void stall(Communicator& comm, std::size_t floats, Milestone& stalls, Milestone& served) {
  const Lines asks(comm), answers(comm);
  comm.barrier().wait();
  Letter letter{static_cast<std::int64_t>(Ask::kPull), 0};
  asks.send(view_of(letter), 0, kSecond).wait();
  stalls.reach(0);

  Letter asked{};
  asks.recv(view_of(asked), 2, kSecond).wait();
  const auto n = static_cast<std::size_t>(asked[1]);
  std::vector<std::int32_t> keys(1 + 2 * n);
  asks.recv(keys, 2, kSecond).wait();
  std::vector<float> weights(1 + n * floats);
  answers.send(weights, 2, kSecond).wait();

  EXPECT_TRUE(served.await(0)) << "worker 2 waits for worker 1, which worker 0 waits for";
  keys.assign(1, 0);
  asks.send(keys, 0, kSecond).wait();
  std::vector<float> are_left(1);
  answers.recv(are_left, 0, kSecond).wait();
  EXPECT_EQ(are_left[0], 1);
  served.reach(1);
}

TEST(ShardService, ServesOthersWhileOneStallsInTheMiddleOfAMessage) {
  const Dataset data = skewed_rows({.rows = 400, .complete = false});
  const TrainOptions options{
      .model = {.kind = ModelKind::kFm, .factors = 4}, .average = 0, .batch_rows = kBatch};
  Milestone stalls, served;
  const auto body = [&](Communicator& comm) {
    ServiceSeat seat(comm, data, options, {.hot = 20, .copies = 1, .partial = PartialOptions{}});
    if (comm.rank() == 1) {
      return stall(comm, floats_sent(seat.worker().hot.layout()), stalls, served);
    }
    ShardService service(seat.worker(), 10);
    service.open(data.rows());
    comm.barrier().wait();
    if (comm.rank() == 2) {
      EXPECT_TRUE(stalls.await(0));
      Step step = seat.step(kBatch);
      EXPECT_TRUE(service.pull(step));
      served.reach(0);
    }
    EXPECT_TRUE(served.await(1));
  };
  run_local(3, body, {.timeout = kSecond});
}

}  // namespace
}  // namespace motley::wide
