// Shows that whenever the power is cut, or a call to the system fails, a complete checkpoint
// remains: at the n-th call that changes files, for every n, with every kind of loss; one worker
// and several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/checkpoint.h"
#include "test/runtime/checkpoint_cases.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/simulated_disk.h"

namespace motley::runtime {
namespace {

using test::SimulatedDisk;
using Fault = SimulatedDisk::Fault;
using Loss = SimulatedDisk::Loss;

// Saves the state after `steps` steps; false if that failed, on all workers alike.
bool save(SimulatedDisk& disk, int workers, int steps, int keep) {
  std::vector<int> saved(static_cast<std::size_t>(workers));
  const auto one = [&](Checkpointer& checkpoints, int rank) {
    Training training(rank);
    training.step(steps);
    try {
      checkpoints.save(training.state, steps);
      checkpoints.wait();
      saved[static_cast<std::size_t>(rank)] = 1;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    }
  };
  const CheckpointOptions options{.keep = keep, .files = &disk};
  if (workers == 1) {
    Checkpointer checkpoints("folder", options);
    one(checkpoints, 0);
  } else {
    test::run_ranks(workers, [&](Communicator& comm) {
      Checkpointer checkpoints("folder", comm, options);
      one(checkpoints, comm.rank());
    });
  }
  EXPECT_THAT(saved, ::testing::Each(saved[0]));
  return saved[0] == 1;
}

// The step of the checkpoint that is loaded, 0 for none; its content is checked.
std::int64_t load(SimulatedDisk& disk, int workers) {
  Training training;
  Checkpointer checkpoints("folder", CheckpointOptions{.files = &disk});
  const auto loaded = checkpoints.load(training.state);
  if (!loaded) return 0;
  EXPECT_EQ(loaded->workers, workers);
  Training same;
  same.step(static_cast<int>(loaded->step));
  EXPECT_EQ(training.bytes(true), same.bytes(true)) << "step " << loaded->step;
  return loaded->step;
}

struct Case {
  int workers;
  int keep;
  int chances;  // how often loss is drawn
};

class PowerCut : public ::testing::TestWithParam<Case> {};

// A disk with the checkpoints of steps 1 and 2 on it.
SimulatedDisk::Content two_checkpoints(const Case& example) {
  SimulatedDisk disk;
  EXPECT_TRUE(save(disk, example.workers, 1, example.keep));
  EXPECT_TRUE(save(disk, example.workers, 2, example.keep));
  return disk.content();
}

TEST_P(PowerCut, AtAnyCallLeavesTheOldOrTheNewCheckpoint) {
  const Case example = GetParam();
  const SimulatedDisk::Content before = two_checkpoints(example);
  std::mt19937_64 random(1);
  int old = 0, renewed = 0;
  bool saved = false;
  for (int n = 1; !saved; ++n) {
    SimulatedDisk disk(before);
    disk.fail_at(n, Fault::kPowerCut, static_cast<std::uint64_t>(n));
    saved = save(disk, example.workers, 3, example.keep);
    std::vector<Loss> losses(static_cast<std::size_t>(example.chances), Loss::kSome);
    losses.insert(losses.end(), {Loss::kNothing, Loss::kAll});
    for (const Loss loss : losses) {
      SimulatedDisk later(disk.after(loss, random));
      const std::int64_t step = load(later, example.workers);
      EXPECT_TRUE(step == 3 || (step == 2 && !saved)) << "step " << step << " after call " << n;
      ++(step == 3 ? renewed : old);
      // And training goes on.
      if (loss == Loss::kSome && losses.size() > 4) continue;
      EXPECT_TRUE(save(later, example.workers, 4, example.keep)) << "after call " << n;
      EXPECT_EQ(load(later, example.workers), 4) << "after call " << n;
    }
    if (HasFailure()) break;
  }
  EXPECT_GT(old, 0);
  EXPECT_GT(renewed, 0);
}

TEST_P(PowerCut, OfASystemThatOnlyFailsOneCallIsAnErrorAndNoMore) {
  const Case example = GetParam();
  const SimulatedDisk::Content before = two_checkpoints(example);
  for (int n = 1;; ++n) {
    SimulatedDisk disk(before);
    disk.fail_at(n, Fault::kError, static_cast<std::uint64_t>(n));
    const bool saved = save(disk, example.workers, 3, example.keep);
    EXPECT_EQ(saved, disk.calls() < n) << "call " << n;
    const std::int64_t step = load(disk, example.workers);
    EXPECT_TRUE(step == 3 || (step == 2 && !saved)) << "step " << step << " after call " << n;
    disk.fail_at(0, Fault::kError);
    EXPECT_TRUE(save(disk, example.workers, 4, 1)) << "after call " << n;
    EXPECT_EQ(load(disk, example.workers), 4) << "after call " << n;
    // What the failed save left is gone, too.
    EXPECT_EQ(disk.list("folder").size(), static_cast<std::size_t>(example.workers) + 1);
    if (saved || HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, PowerCut,
                         ::testing::Values(Case{1, 1, 40}, Case{1, 2, 40}, Case{3, 1, 10}),
                         [](const auto& one) {
                           return std::to_string(one.param.workers) + "Keeping" +
                                  std::to_string(one.param.keep);
                         });

// The disk itself forgets: each step that a careful writer makes is needed.
TEST(SimulatedDisk, KeepsOnlyWhatWasSynced) {
  const std::vector<std::byte> bytes(100, std::byte{7});
  std::mt19937_64 random(1);
  const auto after = [&](bool sync, bool sync_folder) {
    SimulatedDisk disk;
    const auto file = disk.create("folder/a.tmp");
    file->write(bytes);
    if (sync) file->sync();
    disk.rename("folder/a.tmp", "folder/a");
    if (sync_folder) disk.sync_folder("folder");
    return SimulatedDisk::Content(disk.after(Loss::kAll, random));
  };
  EXPECT_EQ(SimulatedDisk(after(true, true)).read("folder/a"), bytes);
  EXPECT_TRUE(SimulatedDisk(after(false, true)).read("folder/a").empty());
  EXPECT_TRUE(SimulatedDisk(after(true, false)).list("folder").empty());
}

// A write that the power cuts leaves any part of what it was to write; a kill, all before it.
TEST(SimulatedDisk, CutsWritesAnywhere) {
  const std::vector<std::byte> bytes(3, std::byte{7});
  std::vector<int> seen(4);
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SimulatedDisk disk;
    const auto file = disk.create("a");
    disk.fail_at(1, Fault::kPowerCut, seed);
    test::expect_error(ErrorCode::kIo, {}, [&] { file->write(bytes); });
    test::expect_error(ErrorCode::kIo, {}, [&] { file->write(bytes); });
    test::expect_error(ErrorCode::kIo, {}, [&] { disk.remove("a"); });
    ++seen[disk.read("a").size()];
  }
  EXPECT_THAT(seen, ::testing::Each(::testing::Gt(0)));
}

}  // namespace
}  // namespace motley::runtime
