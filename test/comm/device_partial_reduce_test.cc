// Partial-reduce of models in device memory: the bits of host memory, a model that only a commit
// writes, and a stream that is waited for; over mailboxes, shared memory and UCX, which moves
// device memory itself or by pinned slots. Devices are emulated.
#include <array>
#include <atomic>

#include "comm/partial_reduce.h"
#include "test/comm/partial_ranks.h"
#include "test/support/buffer.h"
#include "test/support/device_emulated.h"
#include "test/support/rank_runner.h"

namespace motley::test {
namespace {

using testing::Each;
using testing::ElementsAre;

class DevicePartialReduce : public testing::Test {
 protected:
  DevicePartialReduce() { emulate({.host_access = HostAccess::kForbidden}); }
};

class DevicePartialReduceOver : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string_view(GetParam()).starts_with("ucx") && !ucx_is_built())
      GTEST_SKIP() << "UCX is not in this build";
    emulate({.host_access = host_access_over(GetParam())});
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, DevicePartialReduceOver,
                         testing::Values("inproc", "shm", "ucx", "ucx_staged"));

std::vector<float> model_of(int rank, int step) {
  std::vector<float> model(5'000);
  for (std::size_t i = 0; i < model.size(); ++i) {
    model[i] =
        1 / static_cast<float>(1 + rank + static_cast<int>(i % 97)) + static_cast<float>(step);
  }
  return model;
}

// One member has its model in host memory.
TEST_P(DevicePartialReduceOver, GivesTheBitsOfHostMemory) {
  const auto body = [](Communicator& comm, LocalControl&) {
    PartialReducer reducer(comm, {.group_size = 3});
    for (int step = 0; step < 3; ++step) {
      std::vector<float> due = model_of(comm.rank(), step);
      EXPECT_THAT(reducer.average(due, 2 * step).group, ElementsAre(0, 1, 2));
      Buffer<float> model(comm.rank() == 2 ? Memory::kHost : Memory::kDevice,
                          model_of(comm.rank(), step));
      EXPECT_THAT(reducer.average(model, 2 * step + 1).group, ElementsAre(0, 1, 2));
      EXPECT_EQ(model.read(), due) << "rank " << comm.rank() << ", step " << step;
    }
  };
  run(3, body, seconds(60), GetParam());
}

// Rank 3 gets into a group and dies: once it has looked at the models of the others, before it has
// sent anything, so that they do it again without it; or it has the average, and so may the others,
// who may be writing it into their models.
void die_after_a_look(Communicator& comm, LocalControl& control,
                      const std::array<std::byte*, 3>& models, const std::vector<float>* own) {
  const GroupOutcome outcome =
      comm.control()->ready(0, note_of(4), Clock::real().now() + seconds(20));
  ASSERT_EQ(outcome.kind, GroupOutcome::kGroup);
  const Group group(outcome.members, outcome.tag);
  std::vector<float> average(1'000);
  if (own != nullptr) {
    comm.all_reduce(*own, average, ReduceOp::kAverage, {.group = &group}).wait();
    EXPECT_THAT(average, Each(1.5f));
  }
  for (std::size_t rank = 0; own == nullptr && rank < 3; ++rank) {
    const ConstView model(models[rank], average.size(), DType::kFloat32, Memory::kDevice);
    Stream stream;
    motley::copy(average, model, stream);
    synchronize(stream);
    EXPECT_THAT(average, Each(static_cast<float>(rank)));
  }
  control.report_lost(3, "the test ended it");
}

TEST_P(DevicePartialReduceOver, LeavesModelsAloneUntilTheyHaveTheAverage) {
  for (const bool takes_part : {false, true}) {
    std::array<std::byte*, 3> models{};
    const auto body = [&, takes_part = takes_part](Communicator& comm, LocalControl& control) {
      const std::vector<float> own(1'000, static_cast<float>(comm.rank()));
      if (comm.rank() == 3)
        return die_after_a_look(comm, control, models, takes_part ? &own : nullptr);
      Buffer<float> model(Memory::kDevice, own);
      models[static_cast<std::size_t>(comm.rank())] = model.view().data;
      PartialReducer reducer(comm, {.group_size = 4});
      const PartialResult result = reducer.average(model, 0);
      // Who is so slow that the loss comes to him before the average does it again, too.
      const bool again = result.group.size() == 3;
      EXPECT_TRUE(again || takes_part);
      EXPECT_EQ(result.attempts, again ? 2 : 1);
      EXPECT_THAT(model.read(), Each(again ? 1.0f : 1.5f));
    };
    run(4, body, seconds(60), GetParam());
  }
}

TEST_F(DevicePartialReduce, WaitsForItsStreamWithADeadline) {
  run(2, [&](Communicator& comm, LocalControl&) {
    Buffer<float> model(Memory::kDevice, std::vector<float>(100, 1));
    synchronize(StreamRef{});
    std::atomic<bool> released{false};
    Stream stream;
    enqueue(stream, [&] { return released.load(); });
    PartialReducer reducer(comm, {.group_size = 2, .timeout = seconds(0.02)});
    expect_error(ErrorCode::kTimeout, "work in its stream",
                 [&] { reducer.average(model, 0, stream); });
    released = true;
    synchronize(stream);
    EXPECT_THAT(model.read(), Each(1));
  });
}

TEST_F(DevicePartialReduce, RefusesMemoryThatIsNotTheDevices) {
  run(2, [&](Communicator& comm, LocalControl&) {
    std::vector<float> host(10);
    View model(host);
    model.memory = Memory::kDevice;
    PartialReducer reducer(comm, {.group_size = 2});
    expect_error(ErrorCode::kInvalid, "`data`", [&] { reducer.average(model, 0); });
  });
}

}  // namespace
}  // namespace motley::test
