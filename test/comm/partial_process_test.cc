// Partial-reduce between processes that are killed or stand still: one, or all of a host; and
// others that come in their place.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <stdexcept>
#include <string>

#include "comm/partial_reduce.h"
#include "test/comm/forked.h"
#include "test/comm/partial_ranks.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;

Options seat_at(const ForkedController& controller, int rank, int size,
                const std::string& transport) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.controller = controller.address();
  options.token = "t";
  options.transport = transport;
  return options;
}

// Four processes, one of which is killed while all are averaging: between hosts (ucx) with parts of
// a model on the way, which is an error there and not the end of the others (scenarios 33 and 34).
class PartialReduceProcesses : public testing::TestWithParam<const char*> {};

TEST_P(PartialReduceProcesses, PartialScenario33And34GoOnWhenOneIsKilled) {
  const bool between_hosts = GetParam() != std::string("shm");
  if (between_hosts && ucx_is_missing()) GTEST_SKIP() << "UCX is not in this build";
  constexpr int kSize = 4;
  const ForkedController controller({.size = kSize, .token = "t", .lease = seconds(60)});
  const auto train = [&](int rank, const std::function<void(int step)>& after_step) {
    Communicator comm = Communicator::join(seat_at(controller, rank, kSize, GetParam()));
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<float> model(50'000, static_cast<float>(rank));
    for (int step = 0; step < 300; ++step) {
      reducer.average(model, step);
      after_step(step);
    }
    return comm.control()->lost_ranks();
  };
  const auto others = [&](int rank) { return [&train, rank] { train(rank, [](int) {}); }; };
  Forked first(others(1)), second(others(2)), killed(others(3));
  const std::vector<int> lost = train(0, [&](int step) {
    if (step == 50) killed.signal(SIGKILL);
  });
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
  EXPECT_THAT(lost, ElementsAre(3));
}

INSTANTIATE_TEST_SUITE_P(Transports, PartialReduceProcesses, testing::Values("shm", "ucx"));

constexpr Duration kWholeTest = seconds(120);

// Averages until rank 0 says that it is enough, which is told when there was a group of three with
// one of the ranks that came later.
void average_with_others(Communicator& comm, PartialReducer& reducer, std::vector<double>& model,
                         int step) {
  std::vector<int> word(1), end(1);
  Request ended = comm.recv(end, 0, {.timeout = kWholeTest});
  for (bool told = false; !ended.test(); ++step) {
    const std::vector<int> group = reducer.average(model, step).group;
    if (told || group.size() < 3 || group.back() < 3) continue;
    comm.send(word, 0).wait();
    told = true;
  }
  if (std::ranges::count(model, 1.0) == std::ssize(model)) return;
  throw std::runtime_error(fmt::format("{} is not the mean", model.front()));
}

// Five processes, of which three average together and two are spare. One is killed, so that fewer
// are left than a group wants: the others go on in pairs. Then the spare ones come in its place,
// with models that are worth nothing: they have that of the others, and groups are of three again.
TEST(PartialReduce, PartialScenario1OthersComeInThePlaceOfOneThatIsKilled) {
  constexpr int kSize = 5;
  const ForkedController controller({.size = kSize, .token = "t", .lease = seconds(60)});
  const auto spare = [&](int rank) {
    Communicator comm = Communicator::join(seat_at(controller, rank, kSize, "shm"));
    PartialReducer(comm, {.group_size = 3}).leave();
    std::vector<int> step(1);
    comm.recv(step, 0, {.timeout = kWholeTest}).wait();
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<double> model(1000, 1e6);
    reducer.join(model, step[0]);
    average_with_others(comm, reducer, model, step[0] + 1);
  };
  const auto train = [&](int rank) {
    Communicator comm = Communicator::join(seat_at(controller, rank, kSize, "shm"));
    PartialReducer reducer(comm, {.group_size = 3});
    std::vector<double> model(1000, rank);
    average_with_others(comm, reducer, model, 0);
  };
  Forked second([&] { train(1); }), killed([&] { train(2); });
  Forked fourth([&] { spare(3); }), fifth([&] { spare(4); });
  Communicator comm = Communicator::join(seat_at(controller, 0, kSize, "shm"));
  PartialReducer reducer(comm, {.group_size = 3});
  std::vector<double> model(1000, 0.0);
  std::vector<int> step(1), word(1);
  while (reducer.average(model, step[0]).group != std::vector{0, 1}) {
    if (++step[0] == 20) killed.signal(SIGKILL);
  }
  EXPECT_GE(step[0], 20);
  for (const int rank : {3, 4}) comm.send(step, rank).wait();
  for (const int rank : {1, 3, 4}) {
    Request told = comm.recv(word, rank, {.timeout = kWholeTest});
    while (!told.test()) reducer.average(model, ++step[0]);
  }
  for (const int rank : {1, 3, 4}) comm.send(word, rank).wait();
  reducer.leave();
  EXPECT_THAT(model, Each(1.0));
  for (Forked* each : {&second, &fourth, &fifth}) EXPECT_EQ(each->wait(), 0);
  EXPECT_THAT(comm.control()->lost_ranks(), ElementsAre(2));
}

}  // namespace
}  // namespace motley::test
