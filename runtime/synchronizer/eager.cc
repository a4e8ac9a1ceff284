// Eager SGD: in each round the changes of all workers are averaged, those of who is late being what
// it had brought before, perhaps nothing; what it brings later goes into the next round. So all
// hold one model. `eager_solo`: whoever comes first begins the round, and every `sync_rounds`-th
// waits for all. `eager_majority`: a worker drawn at random begins it, so that half of the others,
// in the mean, are there.
//   cost    2(N-1)/N * n elements a round, and what rounds.h says
//   deaths  as rounds.h says
// S. Li et al., "Taming unbalanced training workloads in deep learning with partial collective
// operations", PPoPP 2020.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "runtime/numeric/types.h"
#include "runtime/seed.h"
#include "runtime/synchronizer/arithmetic.h"
#include "runtime/synchronizer/final_average.h"
#include "runtime/synchronizer/methods.h"
#include "runtime/synchronizer/rounds.h"

namespace motley::runtime {
namespace {

constexpr std::uint64_t kRounds = std::uint64_t{1} << 57;  // id of the group

enum class Begin : std::uint8_t { kFirst, kDrawn };

class Eager final : public Synchronizer, private RoundRule {
 public:
  Eager(Begin begin, Communicator& comm, const SynchronizerOptions& options)
      : begin_(begin),
        comm_(comm),
        options_(options),
        group_(comm.world().ranks(), {.id = kRounds, .epoch = comm.world().next_call()}),
        working_(comm.world().ranks()),
        final_(comm, options.finish_timeout) {}
  ~Eager() override {
    if (rounds_) rounds_->stop();
  }
  const char* name() const noexcept override {
    return begin_ == Begin::kFirst ? "eager_solo" : "eager_majority";
  }
  bool survives_loss() const noexcept override { return false; }

  void begin(ConstView parameters) override {
    check_model(name(), parameters);
    base_ = ModelBuffer(parameters);
    model_ = ModelBuffer(parameters);
    change_ = ModelBuffer(parameters.count, parameters.dtype);
    const auto workers = static_cast<std::size_t>(comm_.size());
    sent_ = ModelBuffer(parameters.count + workers, parameters.dtype);
    rounds_.emplace(name(), comm_, options_, static_cast<RoundRule&>(*this));
  }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(name(), parameters, &base_);
    return rounds_->arrive([&] { add_change(change_.view(), parameters, base_.view()); },
                           [&] {
                             copy(parameters, model_.view());
                             copy(base_.view(), model_.view());
                           });
  }

  // What has not gone into a round yet goes into the last average.
  SyncReport finish(View parameters) override {
    check_model(name(), parameters, &base_);
    const TimePoint called = comm_.clock().now();
    rounds_->finish();
    copy(parameters, model_.view());
    add_scaled(parameters, change_.view(), 1);
    const TimePoint silent = comm_.clock().now();
    SyncReport report = final_.over_all(parameters);
    report.waiting += silent - called;
    return report;
  }

 private:
  int activator(std::int64_t round) override {
    if (begin_ == Begin::kFirst || working_.empty()) return -1;
    const std::uint64_t drawn = mix({.seed = options_.seed, .purpose = "eager", .epoch = round});
    return working_[drawn % working_.size()];
  }
  bool waits_for_all(std::int64_t round) override {
    return begin_ == Begin::kFirst && round % options_.sync_rounds == options_.sync_rounds - 1;
  }
  void finish() override { finished_ = true; }

  // The change, and behind it which workers have finished.
  void bring(std::int64_t) override {
    copy(sent_.view().slice(0, change_.count()), change_.view());
    set_zero(change_.view());
    set_zero(flags());
    if (!finished_) return;
    with_floating(name(), flags().dtype, [&]<class T>(T) {
      flags().as<T>()[static_cast<std::size_t>(comm_.rank())] = static_cast<T>(1.0F);
    });
  }
  Request start(std::int64_t) override {
    return comm_.all_reduce(sent_.view(), ReduceOp::kSum,
                            {.group = &group_, .timeout = options_.timeout});
  }
  void use(std::int64_t) override {
    add_scaled(model_.view(), sent_.view().slice(0, change_.count()), 1.0 / comm_.size());
    with_floating(name(), flags().dtype, [&]<class T>(T) {
      std::erase_if(working_, [&](int rank) {
        return static_cast<float>(flags().as<T>()[static_cast<std::size_t>(rank)]) > 0.5F;
      });
    });
  }
  View flags() noexcept {
    return sent_.view().slice(change_.count(), static_cast<std::size_t>(comm_.size()));
  }

  Begin begin_;
  Communicator& comm_;
  SynchronizerOptions options_;
  Group group_;
  std::vector<int> working_;  // who had not finished in the last round; the same on all
  FinalAverage final_;
  bool finished_ = false;
  ModelBuffer model_;   // of all
  ModelBuffer base_;    // the model when the trainer last saw it
  ModelBuffer change_;  // of this worker, not in a round yet
  ModelBuffer sent_;
  std::optional<Rounds> rounds_;
};

}  // namespace

std::unique_ptr<Synchronizer> make_eager_solo(Communicator& comm,
                                              const SynchronizerOptions& options) {
  return std::make_unique<Eager>(Begin::kFirst, comm, options);
}

std::unique_ptr<Synchronizer> make_eager_majority(Communicator& comm,
                                                  const SynchronizerOptions& options) {
  return std::make_unique<Eager>(Begin::kDrawn, comm, options);
}

}  // namespace motley::runtime
