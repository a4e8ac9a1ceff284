// Shows for every method of make_synchronizer() that it computes what it should, whoever is fast or
// slow (the result does not depend on it), that workers with different numbers of steps all come to
// an end with one model, and what becomes of the others when one dies. Ranks are threads.
#include "runtime/synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "comm/error.h"
#include "comm/local.h"
#include "runtime/synchronizer/model_server.h"
#include "runtime/trainer.h"
#include "test/runtime/method_options.h"
#include "test/support/errors.h"

namespace motley::runtime {
namespace {

using test::expect_invalid;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The models of all ranks.
std::vector<double> gathered(Communicator& comm, const std::vector<double>& model) {
  std::vector<double> all(model.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(model, all).wait();
  return all;
}

// Rank r makes 3 + r steps, each taking r ms, and adds `gain(r)` to the model at each.
template <class Gain>
double trained(Communicator& comm, const std::string& method, Gain gain, std::size_t n = 5) {
  const auto synchronizer = make_synchronizer(method, comm, kOptions);
  EXPECT_EQ(synchronizer->name(), method);
  Trainer trainer(comm, *synchronizer, {.base_step = std::chrono::milliseconds(comm.rank())});
  std::vector<double> model(n, 1);
  trainer.run(model, [&](std::int64_t step) {
    if (step == 3 + comm.rank()) return false;
    for (double& x : model) x += gain(comm.rank());
    return true;
  });
  const std::vector<double> all = gathered(comm, model);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], model[i % n]) << method;
  return n == 0 ? 0 : model[0];
}

class EveryMethod : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  std::string method() const { return std::get<0>(GetParam()); }
  int size() const { return std::get<1>(GetParam()); }
};

// Partial scenarios 5, 7, 41. Who finishes early is not waited for, and all end with one model: the
// mean of what all did; or, where all step together, what those did that were still there.
TEST_P(EveryMethod, EndsWithTheRightModelAfterUnevenSteps) {
  if (method() == "none") GTEST_SKIP() << "averages nothing";
  static const std::set<std::string> in_step = {"all_reduce", "local_sgd", "backup_workers"};
  run_local(size(), [&](Communicator& comm) {
    double expected = 1;
    for (int step = 0; step < 2 + size(); ++step) {
      double sum = 0, working = 0;
      for (int rank = std::max(0, step - 2); rank < size(); ++rank) {
        sum += rank + 1;
        ++working;
      }
      expected += sum / (in_step.contains(method()) ? working : size());
    }
    EXPECT_NEAR(trained(comm, method(), [](int rank) { return rank + 1; }), expected, 1e-9)
        << method() << ", rank " << comm.rank();
    // Once more on the same communicator; and a model of nothing.
    EXPECT_NEAR(trained(comm, method(), [](int rank) { return rank + 1; }), expected, 1e-9);
    trained(
        comm, method(), [](int) { return 0; }, 0);
  });
}

// A sum of models may be too large for a number where their average is none such, in a group and
// in the end.
TEST(Synchronizers, AverageModelsThatAreAsLargeAsCanBe) {
  run_local(3, [&](Communicator& comm) {
    const auto synchronizer = make_synchronizer("partial_reduce", comm, kOptions);
    const float most = std::numeric_limits<float>::max();
    std::vector<float> model = {most, comm.rank() == 0 ? 3e38F : -3e38F};
    synchronizer->begin(model);
    synchronizer->average(model, 0);
    synchronizer->finish(model);
    EXPECT_NEAR(model[0] / most, 1, 2e-6);
    EXPECT_NEAR(model[1] / 1e38F, -1, 3e-6);
  });
}

// Partial scenario 24: nothing of averages is left.
TEST_P(EveryMethod, TrainsAloneLikeNobody) {
  run_local(1, [&](Communicator& comm) {
    EXPECT_EQ(trained(comm, method(), [](int) { return 0.1; }), 1 + 0.1 + 0.1 + 0.1);
  });
}

TEST_P(EveryMethod, SaysWhoGoesOnWhenAWorkerDies) {
  if (size() < 4) GTEST_SKIP() << "with one number of workers";
  static const std::set<std::string> others_go_on = {"none", "partial_reduce", "ad_psgd",
                                                     "backup_workers", "parameter_server"};
  std::atomic<int> ended{0};
  const auto body = [&](Communicator& comm) {
    const auto synchronizer = make_synchronizer(method(), comm, kOptions);
    std::vector<float> model(100);
    synchronizer->begin(model);
    try {
      for (std::int64_t step = 0; step < 20; ++step) {
        if (comm.rank() == 2 && step == 5) throw std::runtime_error("the test ends it");
        for (float& x : model) x += 1;
        synchronizer->average(model, step);
      }
      synchronizer->finish(model);
      EXPECT_TRUE(others_go_on.contains(method())) << "rank " << comm.rank();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost) << error.what();
      EXPECT_FALSE(synchronizer->survives_loss());
      EXPECT_FALSE(others_go_on.contains(method())) << error.what();
    }
    ++ended;
  };
  EXPECT_THROW(run_local(size(), body), std::runtime_error);
  EXPECT_EQ(ended, size() - 1);
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethod,
                         ::testing::Combine(::testing::ValuesIn(synchronizer_names()),
                                            ::testing::Values(2, 3, 5)),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::to_string(std::get<1>(test.param)) + "_ranks";
                         });

// Partial scenario 19: a loss that is averaged along with the model is the mean over those that
// were there. Rank 2 makes one step; the others' losses do not jump by its share.
TEST(Synchronizers, PartialScenario19MeansCountWhoIsThere) {
  for (const char* method : {"all_reduce", "local_sgd", "partial_reduce"}) {
    run_local(3, [&](Communicator& comm) {
      SynchronizerOptions options = kOptions;
      options.group_size = 3;
      const auto synchronizer = make_synchronizer(method, comm, options);
      ASSERT_TRUE(synchronizer->mixes());
      std::vector<double> loss = {0};
      synchronizer->begin(loss);
      for (std::int64_t step = 0; step < (comm.rank() == 2 ? 1 : 5); ++step) {
        loss[0] = comm.rank() == 2 ? 8 : 5;
        const SyncReport report = synchronizer->average(loss, step);
        EXPECT_EQ(loss[0], step == 0 ? 6 : 5) << method << " at step " << step;
        EXPECT_THAT(report.group, SizeIs(step == 0 ? 3 : 2)) << method;
      }
      synchronizer->finish(loss);
    });
  }
}

TEST(LocalSgd, AveragesAfterSoManySteps) {
  run_local(3, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("local_sgd", comm, {.local_steps = 2});
    std::vector<double> model = {0};
    for (std::int64_t step = 0; step < 5; ++step) {
      model[0] += comm.rank();
      const SyncReport report = synchronizer->average(model, step);
      EXPECT_THAT(report.group, SizeIs(step % 2 == 1 ? 3 : 1));
      if (step % 2 == 1) {
        EXPECT_EQ(model[0], static_cast<double>(step + 1));
      }
    }
    EXPECT_THAT(synchronizer->finish(model).group, SizeIs(3));
    EXPECT_EQ(model[0], 5);  // 0, 5 and 10 steps of it, the last of each since the last average
  });
}

std::vector<int> answered(const std::vector<ModelServer::Answer>& answers) {
  std::vector<int> ranks;
  for (const auto& answer : answers) ranks.push_back(answer.to);
  return ranks;
}

// A server of 3 workers' one-element models, and what it is brought.
struct Brought {
  explicit Brought(std::unique_ptr<ModelServer> server_) : server(std::move(server_)) {
    const std::vector<double> zero = {0};
    server->begin(zero);
  }
  std::vector<ModelServer::Answer> step(int rank, std::int64_t version, double change) {
    const std::vector<double> changes = {change};
    return server->step(rank, version, changes);
  }
  double model() const { return server->model().view().as<const double>()[0]; }

  std::unique_ptr<ModelServer> server;
};

TEST(BackupWorkers, AveragesTheFirstAndDropsTheLate) {
  Brought brought(make_backup_server(3, 1));
  EXPECT_THAT(brought.step(2, 0, 6), IsEmpty());
  auto answers = brought.step(0, 0, 2);
  EXPECT_THAT(answered(answers), ElementsAre(0, 2));
  EXPECT_THAT(answers[0].group, ElementsAre(0, 2));
  EXPECT_EQ(brought.model(), 4);
  answers = brought.step(1, 0, 1000);  // made on the model of before
  ASSERT_THAT(answered(answers), ElementsAre(1));
  EXPECT_TRUE(answers[0].dropped);
  EXPECT_EQ(brought.model(), 4);
  EXPECT_THAT(brought.step(1, 1, 5), IsEmpty());
  EXPECT_THAT(answered(brought.step(2, 1, 7)), ElementsAre(1, 2));
  EXPECT_EQ(brought.model(), 10);
}

// Partial scenario 7.
TEST(BackupWorkers, WaitsForNoMoreThanThereAre) {
  Brought brought(make_backup_server(3, 1));
  EXPECT_THAT(brought.server->leave(0), IsEmpty());
  EXPECT_THAT(brought.step(1, 0, 3), IsEmpty());
  EXPECT_THAT(answered(brought.server->leave(2)), ElementsAre(1));
  EXPECT_THAT(answered(brought.step(1, 1, 3)), ElementsAre(1));
  EXPECT_EQ(brought.model(), 6);
}

TEST(ParameterServer, HoldsWhoIsTooFarAhead) {
  Brought brought(make_staleness_server(3, 1));
  EXPECT_THAT(answered(brought.step(0, 0, 3)), ElementsAre(0));
  EXPECT_EQ(brought.model(), 1);  // at once, with the weight of one of three
  EXPECT_THAT(brought.step(0, 1, 3), IsEmpty());
  EXPECT_EQ(brought.model(), 2);
  EXPECT_THAT(answered(brought.step(1, 0, 3)), ElementsAre(1));
  EXPECT_THAT(answered(brought.step(2, 0, 3)), ElementsAre(0, 2));
  EXPECT_THAT(brought.step(2, 0, 3), ElementsAre(::testing::_));  // one ahead of rank 1
  EXPECT_THAT(brought.step(2, 0, 3), IsEmpty());
  EXPECT_THAT(answered(brought.server->leave(1)), ElementsAre(2));  // 3 steps, rank 0 has made 2
}

// The pair ends with one model, and the mean is kept.
TEST(AdPsgd, AveragesAPairAtomically) {
  run_local(2, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("ad_psgd", comm, {});
    std::vector<double> model = {0};
    synchronizer->begin(model);
    model[0] = 8;
    if (comm.rank() == 0) {
      EXPECT_THAT(synchronizer->average(model, 0).group, ElementsAre(0, 1));
      EXPECT_EQ(model[0], 4);  // with rank 1's 0, which is still at its first step
      comm.barrier().wait();
    } else {
      comm.barrier().wait();
      synchronizer->average(model, 0);
      EXPECT_EQ(model[0], 12);  // the 4 of the pair and its own 8
    }
    synchronizer->finish(model);
    EXPECT_EQ(model[0], 8);
  });
}

// Rank 1 is still at its first step in rounds 0 and 1, and round 2 waits for it.
TEST(Eager, SoloGoesOnWithoutTheLateUpToTheRoundOfAll) {
  run_local(2, [](Communicator& comm) {
    const auto synchronizer = make_synchronizer("eager_solo", comm, {.sync_rounds = 3});
    std::vector<double> model = {0};
    synchronizer->begin(model);
    if (comm.rank() == 0) {
      for (const double expected : {1, 2}) {
        model[0] += 2;
        synchronizer->average(model, 0);
        EXPECT_EQ(model[0], expected);  // half of each change
      }
      comm.barrier().wait();
      model[0] += 2;
      synchronizer->average(model, 0);
      EXPECT_EQ(model[0], 8);  // with rank 1's step of 10
    } else {
      comm.barrier().wait();
      model[0] += 10;
      synchronizer->average(model, 0);
    }
    synchronizer->finish(model);
    EXPECT_EQ(model[0], 8);
  });
}

TEST(Eager, MajorityWaitsForTheOneThatIsDrawn) {
  run_local(2, [](Communicator& comm) {
    const auto synchronizer =
        make_synchronizer("eager_majority", comm, {.timeout = std::chrono::milliseconds(300)});
    std::vector<double> model = {0};
    synchronizer->begin(model);
    // Rank 1 never comes: sooner or later it is drawn, and rank 0 is told so.
    if (comm.rank() == 0) {
      test::expect_error(ErrorCode::kTimeout, {"eager_majority", "rank 0", "activated"}, [&] {
        for (std::int64_t step = 0; step < 64; ++step) {
          model[0] += 1;
          synchronizer->average(model, step);
        }
      });
    }
    comm.barrier().wait();
  });
}

TEST(WaitAvoiding, GroupsChangeAndEverySoManiethRoundIsOfAll) {
  run_local(4, [](Communicator& comm) {
    const auto synchronizer =
        make_synchronizer("wait_avoiding", comm, {.group_size = 2, .sync_rounds = 4});
    std::vector<double> model = {0};
    synchronizer->begin(model);
    std::set<std::vector<int>> groups;
    for (std::int64_t step = 0; step < 16; ++step) {
      model[0] += comm.rank();
      const std::vector<int> group = synchronizer->average(model, step).group;
      EXPECT_THAT(group, ::testing::Contains(comm.rank()));
      groups.insert(group);
      comm.barrier().wait();  // all in step, so that all are in each round
      EXPECT_THAT(group, SizeIs(step % 4 == 3 ? 4 : 2)) << step;
      if (step % 4 == 3) {
        EXPECT_EQ(model[0], 1.5 * static_cast<double>(step + 1));
      }
    }
    EXPECT_GE(groups.size(), 3u);
    synchronizer->finish(model);
    EXPECT_EQ(model[0], 24);
  });
}

TEST(Synchronizers, RefuseWhatTheyCannotDo) {
  run_local(2, [](Communicator& comm) {
    for (const SynchronizerOptions& bad : {SynchronizerOptions{.group_size = 1},
                                           {.local_steps = 0},
                                           {.backup = 2},
                                           {.backup = -1},
                                           {.staleness = -1},
                                           {.sync_rounds = 0},
                                           {.timeout = seconds(-1)}}) {
      expect_invalid([&] { make_synchronizer("none", comm, bad); });
    }
    std::vector<double> model(2);
    std::vector<std::int32_t> integers(2);
    for (const char* method : {"ad_psgd", "backup_workers", "eager_solo", "wait_avoiding"}) {
      const auto synchronizer = make_synchronizer(method, comm, {});
      expect_invalid([&] { synchronizer->begin(integers); });
      if (std::string(method) == "ad_psgd" && comm.rank() == 0) continue;  // begins with any
      expect_invalid([&] { synchronizer->average(model, 0); });
    }
  });
}

}  // namespace
}  // namespace motley::runtime
