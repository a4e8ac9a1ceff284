// Workers in step make the same steps bit for bit on any number of workers, and go on from a
// checkpoint as if nothing had happened: stopped, or one of them dead in the middle of a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "comm/local.h"
#include "runtime/gradient_trainer.h"
#include "runtime/sharding.h"
#include "runtime/state_exchange.h"
#include "test/runtime/line_fit.h"
#include "test/support/errors.h"
#include "test/support/temporary_folder.h"

namespace motley::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kMicroBatches = 12;

struct Job {
  int workers = 1;
  std::optional<DType> precision;
  std::int64_t steps = 40;  // 40 of 3 in an epoch, the last of 10 samples
  bool dies = false;        // the last worker, in a step, once there is a checkpoint; no sooner
  AutosaveOptions autosave;
};

struct Outcome {
  std::vector<std::byte> state;  // parameters, optimizer, running values, scale
  std::map<std::int64_t, double> losses;
  std::map<std::int64_t, std::multiset<std::int64_t>> batches;  // samples of all workers, by step
  std::string resumed;
};

std::set<std::string> indices(const std::string& folder) {
  std::set<std::string> names;
  for (const std::string& name : LocalFiles().list(folder))
    if (name.ends_with(".index")) names.insert(name);
  return names;
}

// What a worker does; `outcome` is that of all.
void work(Communicator& comm, const Job& job, Outcome& outcome) {
  static std::mutex mutex;
  Parameters parameters = line(DType::kFloat32);
  Adam adam(parameters.values(), {.weight_decay = 0.01});
  // With a seed of their own: those that have been saved hold.
  const std::uint64_t seed = job.autosave.folder.empty() || comm.size() == 4 ? 7 : 8;
  GlobalBatches batches(
      comm.rank(), comm.size(),
      {.samples = kSamples, .batch = 40, .seed = seed, .micro_batches = kMicroBatches});
  float mean = 0;  // follows the batches, as in BatchNorm
  GradientTrainerOptions options{.learning_rate = {.base = 0.1, .warmup_samples = 200},
                                 .clip_norm = 0.5,
                                 .precision = job.precision,
                                 .loss_scale = {.growth_interval = 5},
                                 .buckets = {.bytes = 4},
                                 .micro_batches = kMicroBatches,
                                 .autosave = job.autosave};
  options.running.add("mean", mean, StatePolicy::kAverage);
  batches.list(options.state);
  GradientTrainer trainer(comm, parameters, adam, options);
  if (trainer.resumed() && comm.rank() == 0) outcome.resumed = to_text(*trainer.resumed());
  const std::int64_t end = trainer.steps() + job.steps;
  while (trainer.steps() < end || job.dies) {
    const std::int64_t step = trainer.steps();
    const GlobalBatches::Part part = batches.next();
    const auto backward = [&](const MicroBatch& micro) {
      if (job.dies && comm.rank() + 1 == comm.size() && !indices(job.autosave.folder).empty())
        throw Error(ErrorCode::kIo, "it dies");
      const auto samples = part.samples.subspan(micro.first, micro.size);
      for (const std::int64_t i : samples) mean += 0.1F * (static_cast<float>(target(i)) - mean);
      return runtime::backward(samples, trainer.values(), trainer.gradients(), micro.weight);
    };
    const StepReport report = trainer.step({.sizes = part.sizes, .batch = part.batch}, backward);
    const std::scoped_lock lock(mutex);
    outcome.batches[step].insert(part.samples.begin(), part.samples.end());
    const auto [at, is_new] = outcome.losses.emplace(step, report.loss);
    EXPECT_EQ(at->second, report.loss) << "worker " << comm.rank() << ", step " << step;
  }
  State all;
  parameters.list(all);
  adam.list(all);
  all.append("", options.running);
  trainer.list(all);
  std::vector<std::byte> state;
  for (const StateItem& item : all.items())
    state.insert(state.end(), item.data.bytes().begin(), item.data.bytes().end());
  const std::scoped_lock lock(mutex);
  if (outcome.state.empty()) outcome.state = state;
  EXPECT_EQ(state, outcome.state) << "worker " << comm.rank();
}

Outcome run(const Job& job) {
  Outcome outcome;
  run_local(job.workers, [&](Communicator& comm) { work(comm, job, outcome); });
  return outcome;
}

class InOrder : public ::testing::TestWithParam<std::optional<DType>> {};

// Batches of 40 and 10 are cut into 12 pieces: of unequal sizes, and some of none.
TEST_P(InOrder, AnyNumberOfWorkersMakesTheSameStepsBitForBit) {
  const Outcome one = run({.precision = GetParam()});
  EXPECT_LT(one.losses.at(39), one.losses.at(0) / 10) << "it learns";
  for (const int workers : {2, 3, 4, 6, 12}) {
    const Outcome many = run({.workers = workers, .precision = GetParam()});
    EXPECT_EQ(many.losses, one.losses) << workers << " workers";
    EXPECT_EQ(many.state, one.state) << workers << " workers";
    EXPECT_EQ(many.batches, one.batches) << workers << " workers";
  }
}

// The trainer completes checkpoints by itself; what was done after the last is made again.
TEST_P(InOrder, AWorkerThatDiesCostsTheStepsSinceTheLastCheckpoint) {
  for (const int workers : {4, 1, 3}) {
    SCOPED_TRACE(testing::Message() << workers << " workers go on");
    const test::TemporaryFolder folder;
    Job job{.workers = 4,
            .precision = GetParam(),
            .dies = true,
            .autosave = {.folder = folder / "run", .every_steps = 3}};
    test::expect_error(ErrorCode::kIo, {"it dies"}, [&] { run(job); });
    job.workers = workers;
    job.dies = false;
    const Outcome rest = run(job);
    EXPECT_THAT(rest.resumed, AllOf(HasSubstr(folder / "run"), HasSubstr("saved by 4 workers")));
    const std::int64_t begun = rest.losses.begin()->first;
    EXPECT_GE(begun, 3);
    const Outcome whole =
        run({.workers = 2, .precision = GetParam(), .steps = begun + job.steps, .autosave = {}});
    EXPECT_EQ(rest.state, whole.state);
    for (const auto& [step, loss] : rest.losses) {
      EXPECT_EQ(loss, whole.losses.at(step)) << "step " << step;
      EXPECT_EQ(rest.batches.at(step), whole.batches.at(step)) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, InOrder,
                         ::testing::Values(std::nullopt, DType::kBFloat16, DType::kFloat16),
                         [](const auto& one) { return name(one.param.value_or(DType::kFloat32)); });

// Two workers have trained, a third begins: handed the list of all that there is, it makes the
// steps that it would have made had it always been there.
TEST(HandOver, AJoinerGoesOnAsIfItHadBeenThereFromTheStart) {
  constexpr std::int64_t kBefore = 7, kAfter = 5;
  const auto train = [](Communicator& comm, bool joins) {
    Parameters parameters = line(DType::kFloat32);
    Adam adam(parameters.values(), {});
    GradientTrainer trainer(comm, parameters, adam,
                            {.learning_rate = {.base = 0.1, .warmup_samples = 200},
                             .precision = DType::kBFloat16,
                             .loss_scale = {.growth_interval = 3}});
    GlobalBatches batches(comm.rank(), comm.size(), {.samples = kSamples, .batch = 30, .seed = 5});
    State state;
    parameters.list(state);
    adam.list(state);
    trainer.list(state);
    batches.list(state);
    const auto step = [&] {
      const GlobalBatches::Part part = batches.next();
      return trainer.step({.sizes = part.sizes, .batch = part.batch}, [&](const MicroBatch& micro) {
        return backward(part.samples, trainer.values(), trainer.gradients(), micro.weight);
      });
    };
    for (std::int64_t i = 0; i < kBefore; ++i) step();
    if (joins && comm.rank() == 2) {  // forgets all that it has
      for (const StateItem& item : state.items())
        std::ranges::fill(item.data.bytes(), std::byte{0});
    }
    if (joins) hand_over(comm, state, 0);
    trainer.refresh();
    std::vector<double> seen;
    for (std::int64_t i = 0; i < kAfter; ++i) {
      const StepReport report = step();
      seen.insert(seen.end(), {report.loss, report.learning_rate, report.gradient_norm});
    }
    EXPECT_EQ(trainer.steps(), kBefore + kAfter);
    for (const float value : parameters.values().as<float>()) seen.push_back(value);
    return seen;
  };
  run_local(3, [&](Communicator& comm) {
    const std::vector<double> always = train(comm, false);
    EXPECT_EQ(train(comm, true), always) << "worker " << comm.rank();
  });
}

TEST(Autosave, GoesOnFromTheNewestThatIsWholeOrFromTheOneAskedFor) {
  const test::TemporaryFolder folder;
  Outcome outcome;
  run_local(2, [&](Communicator& comm) {
    double value = 1;
    State state;
    state.add("value", value, StatePolicy::kAverage);
    Autosave autosave(comm, state,
                      {.folder = folder.path(), .every_steps = 10, .checkpoint = {.keep = 2}});
    EXPECT_FALSE(autosave.loaded().has_value());
    EXPECT_EQ(autosave.step(), 0);
    for (std::int64_t step = 1; step <= 35; ++step) {
      value = static_cast<double>(step);
      autosave.after_step(step, autosave.votes());
    }
    autosave.save(35);
    autosave.save(36);
  });
  const std::set<std::string> kept = indices(folder.path());
  ASSERT_EQ(kept.size(), 2u);
  const auto load = [&](const AutosaveOptions& options) {
    std::string text;
    run_local(3, [&](Communicator& comm) {
      double value = 1;
      State state;
      state.add("value", value, StatePolicy::kAverage);
      const Autosave autosave(comm, state, options);
      EXPECT_EQ(value, autosave.loaded() ? 35 : 1) << "that of step 35 and 36";
      if (comm.rank() == 0 && autosave.loaded()) text = to_text(*autosave.loaded());
    });
    return text;
  };
  const std::string newest = folder / *kept.rbegin();
  EXPECT_THAT(load({.folder = folder.path()}), AllOf(HasSubstr(newest), HasSubstr("step 36")));
  EXPECT_EQ(load({.folder = folder.path(), .resume = false}), "");
  EXPECT_EQ(load({}), "") << "no folder";
  const std::int64_t number = std::stoll(*kept.begin());
  EXPECT_THAT(load({.folder = folder.path(), .load = {.number = number}}),
              AllOf(HasSubstr(*kept.begin()), HasSubstr("step 35")));
  test::expect_error(ErrorCode::kInvalid, {"checkpoint 77", std::to_string(number)},
                     [&] { load({.folder = folder.path(), .load = {.number = 77}}); });
  std::ofstream(newest, std::ios::app) << "and something else";
  EXPECT_THAT(load({.folder = folder.path()}),
              AllOf(HasSubstr(*kept.begin()), HasSubstr("passed over: "), HasSubstr(newest)));
  test::expect_error(ErrorCode::kInvalid, {newest},
                     [&] { load({.folder = folder.path(), .load = {}}); });
  test::expect_error(ErrorCode::kInvalid, {"-1 steps"}, [&] { load({.every_steps = -1}); });
}

// Whoever is slow to write, all save the same step; no step waits for the disk.
TEST(Autosave, SavesByTheClockOfWorker0) {
  const test::TemporaryFolder folder;
  run_local(3, [&](Communicator& comm) {
    double value = 1;
    State state;
    state.add("value", value, StatePolicy::kAverage);
    Autosave autosave(comm, state, {.folder = folder.path(), .every = seconds(1e-9)});
    EXPECT_EQ(autosave.votes(), comm.rank() == 0);
    autosave.after_step(1, true);   // begins
    autosave.after_step(2, false);  // goes on, or is complete
    autosave.save(3);
    Autosave rarely(comm, state, {.folder = folder / "rarely", .every = seconds(1e6)});
    EXPECT_FALSE(rarely.votes());
    rarely.after_step(1, false);
  });
  EXPECT_EQ(indices(folder.path()).size(), 2u);
  EXPECT_TRUE(indices(folder / "rarely").empty());
}

}  // namespace
}  // namespace motley::runtime
