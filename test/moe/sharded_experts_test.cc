// Scenario 39 for every layout: what was saved by any number of expert-parallel ranks, copies and
// shards of the hidden width is loaded by any other, weights and what an optimizer keeps.
#include "moe/sharded_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "moe/expert_shards.h"
#include "runtime/checkpoint.h"
#include "test/support/errors.h"
#include "test/support/rank_runner.h"
#include "test/support/temporary_folder.h"

namespace motley::moe {
namespace {

using test::expect_error;
using test::run_ranks;
using Floats = std::vector<float>;

constexpr int kExperts = 8;
constexpr const char* kCut[] = {"weights", "adam.moment1", "adam.moment2"};

struct Layout {
  int ranks, replicas, shards;
  Placement placement() const {
    return Placement::grid(
        {.experts = kExperts, .ranks = ranks, .replicas = replicas, .shards = shards});
  }
  std::string name() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(replicas) + " copies, " +
           std::to_string(shards) + " shards";
  }
};

// Every number of an expert is another one.
Floats whole_expert(const ExpertShape& shape, std::int32_t expert, std::size_t item) {
  Floats values;
  for (std::size_t i = 0; i < shape.slot_count(); ++i)
    values.push_back(
        static_cast<float>(100'000 * item + 1'000 * static_cast<std::size_t>(expert) + i));
  return values;
}

// What a rank has of a physical expert: with its data, or zeros.
struct Shard {
  std::vector<Floats> values;
  std::int64_t steps = 0;

  Shard(const ExpertShape& shape, const PhysicalExpert& at) {
    for (std::size_t item = 0; item < std::size(kCut); ++item) {
      Floats& part = values.emplace_back(shard_of(shape, at.shards).slot_count());
      cut_shard(shape, {at.shard, at.shards}, whole_expert(shape, at.expert, item), part);
    }
    steps = 7 + at.expert;
  }
  void clear() {
    for (Floats& part : values) std::ranges::fill(part, 0.0f);
    steps = 0;
  }
  runtime::State state() {
    runtime::State state;
    for (std::size_t item = 0; item < std::size(kCut); ++item) {
      state.add(
          {kCut[item], {values[item].size()}, View(values[item]), runtime::StatePolicy::kAverage});
    }
    state.add("adam.step", steps, runtime::StatePolicy::kMaximum);
    return state;
  }
};

// A rank's shards, and their list.
class Rank {
 public:
  Rank(Communicator& comm, const Layout& layout, const ExpertShape& shape)
      : placement_(layout.placement()), example_(shape, {.shards = layout.shards}) {
    ShardStates states{.here = {}, .example = example_.state()};
    for (const PhysicalExpert& at : placement_.of_rank(comm.rank()))
      states.here.push_back(shards_.emplace_back(shape, at).state());
    experts_.emplace_back(comm, placement_, shape, states);
    experts_.front().list(state_, "layer.0.");
  }
  std::deque<Shard>& shards() { return shards_; }
  ShardedExperts& experts() { return experts_.front(); }
  const runtime::State& state() const { return state_; }

 private:
  Placement placement_;
  Shard example_;
  std::deque<Shard> shards_;
  std::deque<ShardedExperts> experts_;
  runtime::State state_;
};

void save(const std::string& folder, const Layout& layout, const ExpertShape& shape) {
  run_ranks(layout.ranks, [&](Communicator& comm) {
    Rank rank(comm, layout, shape);
    runtime::Checkpointer checkpoints(folder, comm);
    rank.experts().collect();
    checkpoints.save(rank.state(), 3);
    checkpoints.wait();
  });
}

void expect_loads(const std::string& folder, const Layout& layout, const ExpertShape& shape) {
  SCOPED_TRACE("loaded by " + layout.name());
  run_ranks(layout.ranks, [&](Communicator& comm) {
    Rank rank(comm, layout, shape);
    for (Shard& shard : rank.shards()) shard.clear();
    ASSERT_TRUE(runtime::Checkpointer(folder, comm).load(rank.state()));
    rank.experts().spread();
    const Placement placement = layout.placement();
    std::size_t slot = 0;
    for (const PhysicalExpert& at : placement.of_rank(comm.rank())) {
      const Shard due(shape, at);
      EXPECT_EQ(rank.shards()[slot].values, due.values) << "expert " << at.expert;
      EXPECT_EQ(rank.shards()[slot].steps, due.steps) << "expert " << at.expert;
      ++slot;
    }
  });
}

class ShardedExpertsOf : public testing::TestWithParam<ExpertForm> {};

TEST_P(ShardedExpertsOf, EveryLayoutGoOnInEveryOtherScenario39) {
  const ExpertShape shape{.width = 3, .hidden = 8, .form = GetParam()};
  std::vector<Layout> layouts;
  for (const int replicas : {1, 2, 4, 8}) {
    for (const int shards : {1, 2, 4, 8}) {
      if (replicas * shards <= 8) layouts.push_back({8, replicas, shards});
    }
  }
  std::vector<Layout> others = layouts;
  others.insert(others.end(), {{1, 1, 1}, {2, 1, 2}, {4, 2, 2}, {4, 1, 4}});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE("saved by " + layout.name());
    const test::TemporaryFolder folder;
    save(folder.path(), layout, shape);
    // Every other pair, and each layout its own: all of both are taken.
    for (std::size_t i = 0; i < others.size(); ++i)
      if (layout.shards != others[i].shards || i % 2 == 0)
        expect_loads(folder.path(), others[i], shape);
  }
}
INSTANTIATE_TEST_SUITE_P(Forms, ShardedExpertsOf,
                         testing::Values(ExpertForm::kPlain, ExpertForm::kGated));

// Shards of one expert on one rank, and ranks without experts.
TEST(ShardedExperts, LieWhereverThePlacementSays) {
  const ExpertShape shape{.width = 2, .hidden = 4};
  const Placement placement(
      {.experts = 1,
       .ranks = 3,
       .physical = {{.expert = 0, .rank = 2, .slot = 0, .shard = 0, .shards = 4},
                    {.expert = 0, .rank = 0, .slot = 1, .shard = 1, .shards = 4},
                    {.expert = 0, .rank = 2, .slot = 3, .shard = 2, .shards = 4},
                    {.expert = 0, .rank = 0, .slot = 0, .shard = 3, .shards = 4}}});
  run_ranks(3, [&](Communicator& comm) {
    std::deque<Shard> shards;
    Shard example(shape, {.shards = 4});
    ShardStates states{.here = {}, .example = example.state()};
    for (const PhysicalExpert& at : placement.of_rank(comm.rank()))
      states.here.push_back(shards.emplace_back(shape, at).state());
    ShardedExperts experts(comm, placement, shape, states);
    runtime::State state;
    experts.list(state, "");
    experts.collect();
    const View weights = state.find("expert.0.weights").data;
    EXPECT_EQ(weights.count, comm.rank() == 1 ? 0 : shape.slot_count());
    if (comm.rank() == 1) return;
    const auto got = weights.as<float>();
    EXPECT_THAT(got, testing::ElementsAreArray(whole_expert(shape, 0, 0)));
    const std::deque<Shard> due = shards;
    for (Shard& shard : shards) shard.clear();
    state.find("expert.0.adam.step").data.as<std::int64_t>()[0] = 7;
    experts.spread();
    for (std::size_t slot = 0; slot < shards.size(); ++slot) {
      EXPECT_EQ(shards[slot].values, due[slot].values);
      EXPECT_EQ(shards[slot].steps, 7);
    }
  });
}

TEST(ShardedExperts, RefuseWhatDoesNotFit) {
  const ExpertShape shape{.width = 2, .hidden = 4};
  run_ranks(1, [&](Communicator& comm) {
    const Placement placement = Placement::grid({.experts = 2, .ranks = 1});
    Shard shard(shape, {}), other({.width = 3, .hidden = 4}, {});
    const auto make = [&](std::vector<runtime::State> here) {
      ShardedExperts(comm, placement, shape, {std::move(here), shard.state()});
    };
    expect_error(ErrorCode::kInvalid, {"1 states", "2 physical"}, [&] { make({shard.state()}); });
    expect_error(ErrorCode::kInvalid, {"physical expert 1"}, [&] {
      make({shard.state(), other.state()});
    });
    EXPECT_NO_THROW(make({shard.state(), shard.state()}));
  });
}

}  // namespace
}  // namespace motley::moe
