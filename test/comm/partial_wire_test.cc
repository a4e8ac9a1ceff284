// What a group's average costs in bytes on the wire: 2(P-1)/P of the model for each member, as an
// all-reduce of P ranks would, and nothing for who is not in the group.
#include <atomic>

#include "comm/executor/engine.h"
#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"
#include "test/support/counting_transport.h"

namespace motley::test {
namespace {

// Bytes that all members together send for one average of `count` floats, over those of the model.
double models_sent(int members, std::size_t count) {
  InprocNetwork network(members);
  LocalControl control(members);
  std::atomic<std::size_t> bytes{0};
  std::vector<std::thread> threads;
  std::vector<Communicator> seats;
  for (int rank = 0; rank < members; ++rank) {
    Options options;
    options.rank = rank;
    options.size = members;
    seats.emplace_back(std::make_unique<CountingTransport>(network.transport(rank)),
                       control.connect(rank), Clock::real(), options);
  }
  for (Communicator& comm : seats) {
    threads.emplace_back([&] {
      PartialReducer reducer(comm, {.group_size = members});
      std::vector<float> model(count, static_cast<float>(comm.rank()));
      EXPECT_EQ(reducer.average(model, 0).group.size(), static_cast<std::size_t>(members));
      bytes += static_cast<CountingTransport&>(comm.engine().transport()).sent_bytes();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(bytes) / static_cast<double>(count * sizeof(float));
}

TEST(PartialReduceWire, AGroupSendsAsMuchAsAnAllReduceOfItsMembers) {
  constexpr std::size_t kFloats = 1'000'003;  // no multiple of anything
  for (const int members : {2, 3, 4, 5, 8}) {
    EXPECT_NEAR(models_sent(members, kFloats) / (2 * (members - 1)), 1, 0.01) << members;
  }
}

}  // namespace
}  // namespace motley::test
