// Shows that a state comes back bit for bit, on any number of workers; that it is written in the
// background, from a copy; and who hears of what goes wrong. Damaged files: checkpoint_damage_test;
// power cuts: power_cut_test.
#include "runtime/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/format.h"
#include "runtime/sharding.h"
#include "test/runtime/checkpoint_cases.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/simulated_disk.h"
#include "test/support/temporary_folder.h"

namespace motley::runtime {
namespace {

using test::expect_error;
using test::expect_invalid;
using test::SimulatedDisk;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

struct Workers {
  int saving;
  int loading;
  DType dtype = DType::kFloat32;
};
class Resume : public ::testing::TestWithParam<Workers> {};

// Six pieces, each of which one worker has, or two: piece i is saved by the lower of workers i %
// saving and (i + 1) % saving, and loaded by whoever wants it then.
TEST_P(Resume, HandsWhatOneWorkerHadToWhoHasItNow) {
  const Workers workers = GetParam();
  const test::TemporaryFolder folder;
  const auto pieces = [&](Communicator& comm, int width, std::vector<std::vector<float>>& data) {
    State state;
    for (int i = 0; i < 6; ++i) {
      const bool here =
          i % comm.size() == comm.rank() || (i + width - 1) % comm.size() == comm.rank();
      data.emplace_back(here ? 5 : 0, static_cast<float>(i));
      state.add({"piece " + std::to_string(i), {5}, View(data.back()), StatePolicy::kOwned});
    }
    return state;
  };
  test::run_ranks(workers.saving, [&](Communicator& comm) {
    std::vector<std::vector<float>> data;
    Checkpointer checkpoints(folder.path(), comm);
    checkpoints.save(pieces(comm, 2, data), 1);
    checkpoints.wait();
  });
  test::run_ranks(workers.loading, [&](Communicator& comm) {
    std::vector<std::vector<float>> data;
    const State state = pieces(comm, 1, data);
    for (auto& piece : data) std::ranges::fill(piece, -1.0f);
    ASSERT_TRUE(Checkpointer(folder.path(), comm).load(state));
    for (int i = 0; i < 6; ++i)
      EXPECT_THAT(data[static_cast<std::size_t>(i)], ::testing::Each(static_cast<float>(i)));
  });
}

TEST(Checkpointer, RefusesWhatNoWorkerHas) {
  const test::TemporaryFolder folder;
  test::run_ranks(2, [&](Communicator& comm) {
    State state;
    state.add({"piece", {5}, View(nullptr, 0, DType::kFloat32), StatePolicy::kOwned});
    Checkpointer checkpoints(folder.path(), comm);
    expect_error(ErrorCode::kInvalid, {"piece", "2 workers"}, [&] { checkpoints.save(state, 1); });
  });
}

// 24 samples four times and 4 make an epoch: the sixth batch is of the second.
const GlobalBatchOptions kBatches = {.samples = 100, .batch = 24, .seed = 9};

// Who goes on from the checkpoint is where one is who never stopped, and takes the same batch.
TEST_P(Resume, GoesOnBitForBitOnAnotherNumberOfWorkers) {
  const Workers workers = GetParam();
  const test::TemporaryFolder folder;
  test::run_ranks(workers.saving, [&](Communicator& comm) {
    Training training(comm.rank(), workers.dtype);
    GlobalBatches batches(comm.rank(), comm.size(), kBatches);
    batches.list(training.state);
    Checkpointer checkpoints(folder / "run/checkpoints", comm);
    training.step(5);
    for (int i = 0; i < 5; ++i) batches.next();
    checkpoints.save(training.state, 5);
    training.step();  // not in what is saved
    checkpoints.wait();
    EXPECT_TRUE(checkpoints.poll());
  });
  std::mutex mutex;
  std::multiset<std::int64_t> batch;  // the next, of all workers
  test::run_ranks(workers.loading, [&](Communicator& comm) {
    Training training(comm.rank(), workers.dtype), whole(comm.rank(), workers.dtype);
    whole.step(5);
    GlobalBatches batches(comm.rank(), comm.size(), kBatches);
    State state = training.state;
    batches.list(state);
    Checkpointer checkpoints(folder / "run/checkpoints", comm);
    const auto loaded = checkpoints.load(state);
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->step, 5);
    EXPECT_EQ(loaded->workers, workers.saving);
    EXPECT_EQ(training.bytes(true), whole.bytes(true)) << "worker " << comm.rank();
    if (workers.saving == workers.loading) {
      EXPECT_EQ(training.bytes(), whole.bytes()) << "worker " << comm.rank();
    }
    if (comm.rank() < workers.saving) {
      EXPECT_EQ(training.position, whole.position);
    }
    std::vector<std::int64_t> counts = training.counts;
    comm.all_reduce(counts, ReduceOp::kSum).wait();
    const int first = 100 * workers.saving * (workers.saving - 1) / 2;
    EXPECT_THAT(counts, ElementsAre(first, first + 5 * workers.saving, first));
    training.step(5);
    whole.step(5);
    EXPECT_EQ(training.bytes(true), whole.bytes(true)) << "worker " << comm.rank();
    const auto samples = batches.next().samples;
    const std::scoped_lock lock(mutex);
    batch.insert(samples.begin(), samples.end());
  });
  GlobalBatches alone(0, 1, kBatches);
  for (int i = 0; i < 5; ++i) alone.next();
  const auto samples = alone.next().samples;
  EXPECT_EQ(batch, std::multiset<std::int64_t>(samples.begin(), samples.end()));
}

INSTANTIATE_TEST_SUITE_P(Counts, Resume,
                         ::testing::Values(Workers{8, 1}, Workers{8, 3}, Workers{8, 8},
                                           Workers{1, 8}, Workers{1, 1},
                                           Workers{3, 8, DType::kFloat64}),
                         [](const auto& each) {
                           return std::to_string(each.param.saving) + "To" +
                                  std::to_string(each.param.loading) + name(each.param.dtype);
                         });

TEST(Checkpointer, FindsNothingWhereNothingIs) {
  const test::TemporaryFolder folder;
  Training training;
  EXPECT_FALSE(Checkpointer(folder / "none").load(training.state).has_value());
  EXPECT_EQ(training.bytes(), bytes_after(0));
  State empty;
  Checkpointer checkpoints(folder.path());
  checkpoints.save(empty, 3);
  EXPECT_EQ(checkpoints.load(empty)->step, 3);
}

TEST(Checkpointer, KeepsTheLastFewAndWhatIsNotItsOwn) {
  const test::TemporaryFolder folder;
  for (const char* name : {"notes.txt", "7.index", "00000001.backup", "00000009.index.txt"}) {
    std::ofstream(folder / name) << "not a checkpoint";
  }
  std::ofstream(folder / "00000001.part-0-of-2") << "left by a save that failed";
  std::ofstream(folder / "00000002.index.tmp") << "likewise";
  Training training;
  Checkpointer checkpoints(folder.path() + "/", {.keep = 2});
  for (int step = 1; step <= 4; ++step) {
    training.step();
    checkpoints.save(training.state, step);
  }
  checkpoints.wait();
  EXPECT_THAT(LocalFiles().list(folder.path()),
              UnorderedElementsAre("lock", "notes.txt", "7.index", "00000001.backup",
                                   "00000009.index.txt", "00000005.index", "00000005.part-0-of-1",
                                   "00000006.index", "00000006.part-0-of-1"));
  EXPECT_EQ(checkpoints.load(training.state)->step, 4);
}

// A disk on which nothing is written until the gate is opened.
class Gate final : public FileSystem {
 public:
  explicit Gate(std::shared_future<void> open) : open_(std::move(open)) {}
  std::unique_ptr<FileLock> lock(const std::string& path) override { return disk_.lock(path); }
  std::unique_ptr<File> create(const std::string& path) override {
    open_.wait();
    return disk_.create(path);
  }
  void rename(const std::string& from, const std::string& to) override { disk_.rename(from, to); }
  void remove(const std::string& path) override { disk_.remove(path); }
  void make_folder(const std::string& path) override { disk_.make_folder(path); }
  void sync_folder(const std::string& path) override { disk_.sync_folder(path); }
  std::vector<std::string> list(const std::string& folder) const override {
    return disk_.list(folder);
  }
  std::vector<std::byte> read(const std::string& path) const override { return disk_.read(path); }

 private:
  std::shared_future<void> open_;
  SimulatedDisk disk_;
};

TEST(Checkpointer, WritesInTheBackgroundWhatWasThereWhenSaved) {
  std::promise<void> open;
  Gate gate(open.get_future().share());
  test::run_ranks(2, [&](Communicator& comm) {
    Training training(comm.rank());
    Checkpointer checkpoints("folder", comm, {.files = &gate});
    training.step(2);
    checkpoints.save(training.state, 2);
    for (int i = 0; i < 3; ++i) {
      training.step();
      EXPECT_FALSE(checkpoints.poll());
    }
    comm.barrier().wait();
    if (comm.rank() == 0) open.set_value();
    checkpoints.wait();
    EXPECT_EQ(checkpoints.load(training.state)->step, 2);
    EXPECT_EQ(training.bytes(), bytes_after(2, comm.rank()));
  });
}

TEST(Checkpointer, GivesUpOnADiskThatDoesNotAnswer) {
  std::promise<void> open;
  Gate gate(open.get_future().share());
  Training training;
  Checkpointer checkpoints("folder", {.timeout = seconds(0.01), .files = &gate});
  checkpoints.save(training.state, 2);
  expect_error(ErrorCode::kTimeout, {"worker 0 of 1", "0.01 s", "00000001.index"},
               [&] { checkpoints.wait(); });
  open.set_value();
  while (!checkpoints.poll()) {
  }
}

TEST(Checkpointer, ReportsErrorsOfTheBackgroundOnceAtTheNextCall) {
  for (const auto& next : std::vector<std::function<void(Checkpointer&, Training&)>>{
           [](Checkpointer&checkpoints, Training&) { checkpoints.wait(); },
           [](Checkpointer&checkpoints, Training&training) { checkpoints.save(training.state, 2); },
           [](Checkpointer&checkpoints, Training&training) { checkpoints.load(training.state); },
           [](Checkpointer&checkpoints, Training&) {
             while (!checkpoints.poll()) {
             }
           }}) {
    SimulatedDisk disk;
    Training training;
    Checkpointer checkpoints("folder", {.files = &disk});
    disk.fail_at(2, SimulatedDisk::Fault::kError);  // the first after the folder was made
    checkpoints.save(training.state, 1);
    expect_error(ErrorCode::kIo, {"00000001.part-0-of-1", "call 2"},
                 [&] { next(checkpoints, training); });
    EXPECT_TRUE(checkpoints.poll());
    checkpoints.save(training.state, 3);
    EXPECT_EQ(checkpoints.load(training.state)->step, 3);
  }
}

TEST(Checkpointer, TellsAllWorkersWhoseDiskFailed) {
  SimulatedDisk disk, bad;
  test::run_ranks(3, [&](Communicator& comm) {
    Training training(comm.rank());
    Checkpointer checkpoints("folder", comm, {.files = comm.rank() == 2 ? &bad : &disk});
    if (comm.rank() == 2) bad.fail_at(3, SimulatedDisk::Fault::kError);
    checkpoints.save(training.state, 1);
    expect_error(ErrorCode::kIo, {comm.rank() == 2 ? "sync" : "worker 2: sync", "call 3"},
                 [&] { checkpoints.wait(); });
    EXPECT_FALSE(checkpoints.load(training.state).has_value());
  });
}

TEST(Checkpointer, SavesNoMixtureOfUnequalCopies) {
  SimulatedDisk disk;
  test::run_ranks(2, [&](Communicator& comm) {
    Training training(comm.rank());
    Checkpointer checkpoints("folder", comm, {.files = &disk});
    expect_error(ErrorCode::kMismatch, {"step 0", "1 on worker 1"},
                 [&] { checkpoints.save(training.state, comm.rank()); });
    if (comm.rank() == 1) training.model.values("bias").as<float>()[0] = 9;
    expect_error(ErrorCode::kMismatch, {"\"bias\"", "worker 1"},
                 [&] { checkpoints.save(training.state, 1); });
    double extra = 0;
    if (comm.rank() == 1) training.state.add("extra", extra, StatePolicy::kSum);
    expect_error(ErrorCode::kMismatch, {}, [&] { checkpoints.save(training.state, 1); });
  });
  EXPECT_TRUE(disk.list("folder").empty());
}

TEST(Checkpointer, RejectsAStateThatIsNotTheOneSaved) {
  SimulatedDisk disk;
  Training training;
  save_alone(disk, training, 1);
  training.step();
  save_alone(disk, training, 2);
  std::vector<float> four(4), weight(21);
  std::vector<double> doubles(21);
  const auto load = [&](const std::vector<StateItem>& items) {
    State state;
    for (const StateItem& item : items) state.add(item);
    Checkpointer("folder", {.files = &disk}).load(state, {.fall_back = true});
  };
  for (const StateItem& first :
       std::vector<StateItem>{{"wieght", {7, 3}, weight, StatePolicy::kAverage},
                              {"weight", {3, 7}, weight, StatePolicy::kAverage},
                              {"weight", {7, 3}, doubles, StatePolicy::kAverage},
                              {"weight", {7, 3}, weight, StatePolicy::kKeepOwn}}) {
    expect_error(ErrorCode::kInvalid, {"00000002.index", "item 0", "[7, 3]"},
                 [&] { load({first}); });
  }
  expect_error(ErrorCode::kInvalid, {"item 1", "nothing", "\"none\""},
               [&] { load({training.state.items()[0]}); });
  Training more;
  more.state.add({"more", {4}, four, StatePolicy::kSum});
  expect_error(ErrorCode::kInvalid, {"\"more\"", "nothing"}, [&] { load(more.state.items()); });
  const View on_device(View(weight).data, 21, DType::kFloat32, Memory::kDevice);
  expect_error(ErrorCode::kInvalid, {"device"}, [&] {
    load({{"weight", {7, 3}, on_device, StatePolicy::kAverage}});
  });
  expect_invalid([] { Checkpointer("folder", {.keep = 0}); });
  expect_invalid([] { Checkpointer("folder", {.timeout = {}}); });
}

TEST(Checkpointer, NamesWhatTheSystemRefuses) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "file") << "in the way";
  Training training;
  Checkpointer checkpoints(folder / "file/checkpoints");
  expect_error(ErrorCode::kIo, {folder / "file"}, [&] { checkpoints.save(training.state, 1); });
}

TEST(Checkpointer, KeepsOtherJobsOutOfItsFolder) {
  const test::TemporaryFolder folder;
  Training training;
  {
    Checkpointer first(folder.path());
    Checkpointer second(folder.path());
    first.save(training.state, 1);
    expect_error(ErrorCode::kUnavailable, {folder / "lock"},
                 [&] { second.save(training.state, 2); });
    EXPECT_TRUE(second.poll()) << "nothing was begun";
    first.wait();
    EXPECT_EQ(second.load(training.state)->step, 1) << "to read is free to all";
  }
  Checkpointer next(folder.path());
  next.save(training.state, 3);
  next.wait();
  EXPECT_EQ(next.load(training.state)->step, 3);
  Checkpointer unlocked(folder.path(), {.lock = false});
  unlocked.save(training.state, 4);
  unlocked.wait();
}

TEST(Checkpointer, LeavesNoHalfFileWhereASaveFailed) {
  SimulatedDisk disk;
  Training training;
  Checkpointer checkpoints("folder", {.files = &disk});
  disk.fail_at(3, SimulatedDisk::Fault::kError);  // the folder is made, a file created, written
  checkpoints.save(training.state, 1);
  expect_error(ErrorCode::kIo, {"write"}, [&] { checkpoints.wait(); });
  EXPECT_THAT(disk.list("folder"), testing::IsEmpty());
}

TEST(Checkpointer, LeavesFilesAloneWhoseNumbersAreNotIts) {
  const test::TemporaryFolder folder;
  const std::string foreign = folder / "9223372036854775807.part-0-of-1";
  std::ofstream(foreign) << "somebody's";
  Training training;
  Checkpointer checkpoints(folder.path(), {.keep = 1});
  for (const std::int64_t step : {1, 2}) checkpoints.save(training.state, step);
  checkpoints.wait();
  EXPECT_TRUE(std::filesystem::exists(foreign));
  EXPECT_THAT(checkpoints.load(training.state)->path, testing::EndsWith("/00000002.index"));
}

// Each element of a shared item is in one part, whatever the numbers.
TEST(Share, CutsItemsWithoutGapOrOverlap) {
  for (const int workers : {1, 2, 3, 7, 8, 1000}) {
    for (const std::size_t count : {0u, 1u, 5u, 8u, 1001u}) {
      const ItemLayout item{"x", {count}};
      std::size_t next = 0;
      for (int worker = 0; worker < workers; ++worker) {
        const Range range = share(item, worker, workers);
        EXPECT_EQ(range.first, next);
        next += range.count;
        EXPECT_LE(range.count, count / static_cast<std::size_t>(workers) + 1);
      }
      EXPECT_EQ(next, count);
    }
  }
  const ItemLayout huge{"x", {std::size_t{1} << 62}};
  EXPECT_EQ(share(huge, 999, 1000).first + share(huge, 999, 1000).count, std::size_t{1} << 62);
}

}  // namespace
}  // namespace motley::runtime
