// Wait-avoiding group averages: in each round the workers are dealt into groups of `group_size`,
// drawn anew, each of which averages its models; every `sync_rounds`-th round all average and wait
// for all. Whoever comes first begins a round; the model of who is late takes part as it was, and
// the step that it is making is added to the average when it is done. (The paper mixes a late model
// into the average with the weight 1/(P+1) instead.)
//   cost    2(P-1)/P * n elements a round, and what rounds.h says
//   deaths  as rounds.h says
// S. Li et al., "Breaking (global) barriers in parallel stochastic optimization with wait-avoiding
// group averaging", TPDS 2021.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "runtime/permutation.h"
#include "runtime/seed.h"
#include "runtime/synchronizer/arithmetic.h"
#include "runtime/synchronizer/final_average.h"
#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/rounds.h"

namespace motley::runtime {
namespace {

constexpr const char* kName = "wait_avoiding";
constexpr std::uint64_t kRounds = std::uint64_t{1} << 58;  // ids of groups

class WaitAvoiding final : public Synchronizer, private RoundRule {
 public:
  WaitAvoiding(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm),
        options_(options),
        number_(comm.world().next_call()),
        final_(comm, options.finish_timeout) {}
  ~WaitAvoiding() override {
    if (rounds_) rounds_->stop();
  }
  const char* name() const noexcept override { return kName; }
  bool survives_loss() const noexcept override { return false; }

  void begin(ConstView parameters) override {
    check_model(kName, parameters);
    for (ModelBuffer* each : {&base_, &model_, &own_, &mean_}) *each = ModelBuffer(parameters);
    rounds_.emplace(kName, comm_, options_, static_cast<RoundRule&>(*this));
  }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(kName, parameters, &base_);
    std::vector<int> group;
    SyncReport report =
        rounds_->arrive([&] { add_change(model_.view(), parameters, base_.view()); },
                        [&] {
                          copy(parameters, model_.view());
                          copy(base_.view(), model_.view());
                          group = last_group_;
                        });
    report.group = std::move(group);
    return report;
  }

  SyncReport finish(View parameters) override {
    check_model(kName, parameters, &base_);
    const TimePoint called = comm_.clock().now();
    rounds_->finish();
    copy(parameters, model_.view());
    const TimePoint silent = comm_.clock().now();
    SyncReport report = final_.over_all(parameters);
    report.waiting += silent - called;
    return report;
  }

 private:
  int activator(std::int64_t) override { return -1; }
  bool waits_for_all(std::int64_t round) override { return is_of_all(round); }
  void finish() override {}

  void bring(std::int64_t round) override {
    copy(own_.view(), model_.view());
    last_group_ = group_of(round);
  }
  Request start(std::int64_t round) override {
    group_.emplace(group_of(round), GroupTag{kRounds + static_cast<std::uint64_t>(round), number_});
    return comm_.all_reduce(own_.view(), mean_.view(), ReduceOp::kAverage,
                            {.group = &*group_, .timeout = options_.timeout});
  }
  void use(std::int64_t) override { add_change(model_.view(), mean_.view(), own_.view()); }

  // That of this worker: group_size members, or more where that does not divide N.
  std::vector<int> group_of(std::int64_t round) const {
    if (is_of_all(round)) return comm_.world().ranks();
    const int size = comm_.size();
    const int groups = std::max(1, size / std::max(2, options_.group_size));
    const Permutation order(size, mix({.seed = options_.seed, .purpose = kName, .epoch = round}));
    const auto place_of = [&](int rank) { return static_cast<int>(order(rank)) % groups; };
    const int own = place_of(comm_.rank());
    std::vector<int> members;
    for (int rank = 0; rank < size; ++rank) {
      if (place_of(rank) == own) members.push_back(rank);
    }
    return members;
  }
  bool is_of_all(std::int64_t round) const noexcept {
    return round % options_.sync_rounds == options_.sync_rounds - 1;
  }

  Communicator& comm_;
  SynchronizerOptions options_;
  std::uint32_t number_;  // tells these groups from others of the same communicator
  FinalAverage final_;
  ModelBuffer model_;  // of this worker
  ModelBuffer base_;   // the model when the trainer last saw it
  ModelBuffer own_;    // what this worker brought to the round under way, and what came out
  ModelBuffer mean_;
  std::vector<int> last_group_ = {};
  std::optional<Group> group_;  // of the round under way
  std::optional<Rounds> rounds_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_wait_avoiding(Communicator& comm,
                                                 const SynchronizerOptions& options) {
  return std::make_unique<WaitAvoiding>(comm, options);
}

}  // namespace motley::runtime
