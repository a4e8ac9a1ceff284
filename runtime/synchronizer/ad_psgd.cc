// Pairs: after each step a worker of even rank (active) averages with one of odd rank (passive),
// drawn at random. A passive worker never asks: its listener averages while it computes, and its
// own changes are added to what the model has become meanwhile. So a pair's average is atomic, as
// nobody else writes either model, and no circle of workers can wait for each other.
//   cost    2n elements for each step of an active worker, none for those of passive ones; nobody
//           waits but for messages. With one worker, or no living partner, it trains alone
//   deaths  the others go on
// X. Lian et al., "Asynchronous decentralized parallel stochastic gradient descent", ICML 2018.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <utility>

#include "comm/error.h"
#include "runtime/listener.h"
#include "runtime/seed.h"
#include "runtime/synchronizer/arithmetic.h"
#include "runtime/synchronizer/final_average.h"
#include "runtime/synchronizer/methods.h"

namespace motley::runtime {
namespace {

constexpr const char* kName = "ad_psgd";
constexpr std::int64_t kAverage = 0, kFinish = 1;  // letters of active workers

std::vector<int> ranks_from(int first, int size) {
  std::vector<int> ranks;
  for (int rank = first; rank < size; rank += 2) ranks.push_back(rank);
  return ranks;
}

class Active final : public Synchronizer {
 public:
  Active(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm),
        options_(options),
        lines_(comm),
        partners_(ranks_from(1, comm.size())),
        random_(make_generator({.seed = options.seed, .rank = comm.rank(), .purpose = kName})),
        final_(comm, options.finish_timeout) {}
  const char* name() const noexcept override { return kName; }
  bool survives_loss() const noexcept override { return true; }

  void begin(ConstView parameters) override { check_model(kName, parameters); }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(kName, parameters);
    const TimePoint called = comm_.clock().now();
    while (!partners_.empty()) {
      const int partner = partners_[random_() % partners_.size()];
      try {
        exchange(partner, parameters);
        return {.group = {std::min(comm_.rank(), partner), std::max(comm_.rank(), partner)},
                .averaging = comm_.clock().now() - called};
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost) throw;
        std::erase(partners_, partner);
      }
    }
    return {.group = {comm_.rank()}, .alone = comm_.size() > 1};
  }

  SyncReport finish(View parameters) override {
    Letter letter{kFinish, 0};
    for (const int partner : partners_) {
      try {
        lines_.send(view_of(letter), partner, options_.timeout).wait();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost) throw;
      }
    }
    return final_.over_survivors(parameters);
  }

 private:
  // The model is unchanged until the average has come as a whole.
  void exchange(int partner, View parameters) {
    ModelBuffer answer(parameters.count, parameters.dtype);
    Request answered = lines_.recv(answer.view(), partner, options_.timeout);
    Letter letter{kAverage, 0};
    lines_.send(view_of(letter), partner, options_.timeout).wait();
    lines_.send(parameters, partner, options_.timeout).wait();
    answered.wait();
    copy(parameters, answer.view());
  }

  Communicator& comm_;
  SynchronizerOptions options_;
  Lines lines_;
  std::vector<int> partners_;  // that are not known to be dead
  std::mt19937_64 random_;
  FinalAverage final_;
};

class Passive final : public Synchronizer, private Hearer {
 public:
  Passive(Communicator& comm, const SynchronizerOptions& options)
      : comm_(comm), options_(options), lines_(comm), final_(comm, options.finish_timeout) {
    for (const int rank : ranks_from(0, comm.size())) active_.insert(rank);
  }
  const char* name() const noexcept override { return kName; }
  bool survives_loss() const noexcept override { return true; }

  void begin(ConstView parameters) override {
    check_model(kName, parameters);
    base_ = ModelBuffer(parameters);
    model_ = ModelBuffer(parameters);
    listener_.emplace(lines_, std::vector<int>(active_.begin(), active_.end()),
                      options_.finish_timeout, static_cast<Hearer&>(*this));
  }

  SyncReport average(View parameters, std::int64_t) override {
    check_model(kName, parameters, &base_);
    const std::lock_guard lock(mutex_);
    merge(parameters);
    return {.group = {comm_.rank()}, .alone = active_.empty()};
  }

  // Waits until no active worker will ask any more: the model is then this worker's alone.
  SyncReport finish(View parameters) override {
    check_model(kName, parameters, &base_);
    const TimePoint called = comm_.clock().now();
    {
      std::unique_lock lock(mutex_);
      merge(parameters);
      if (!changed_.wait_for(lock, options_.finish_timeout, [this] { return active_.empty(); })) {
        throw Error(ErrorCode::kTimeout,
                    fmt::format("ad_psgd: rank {} waited {:.1f} s for {} active workers to finish, "
                                "the first being rank {}. Check them, or raise finish_timeout.",
                                comm_.rank(), to_seconds(options_.finish_timeout), active_.size(),
                                *active_.begin()));
      }
      copy(parameters, model_.view());
    }
    const TimePoint silent = comm_.clock().now();
    SyncReport report = final_.over_survivors(parameters);
    report.waiting += silent - called;
    return report;
  }

 private:
  bool heard(int from, const Letter& letter) override {
    if (letter[0] == kFinish) {
      forget(from);
      return false;
    }
    ModelBuffer theirs(model_.count(), model_.view().dtype);
    lines_.recv(theirs.view(), from, options_.timeout).wait();
    {
      const std::lock_guard lock(mutex_);
      halve_sum(model_.view(), theirs.view());
      copy(theirs.view(), model_.view());
    }
    lines_.send(theirs.view(), from, options_.timeout).wait();
    return true;
  }

  void lost(int from, const Error&) noexcept override { forget(from); }

  void forget(int from) noexcept {
    const std::lock_guard lock(mutex_);
    active_.erase(from);
    changed_.notify_all();
  }

  void merge(View parameters) {
    add_change(model_.view(), parameters, base_.view());
    copy(parameters, model_.view());
    copy(base_.view(), model_.view());
  }

  Communicator& comm_;
  SynchronizerOptions options_;
  Lines lines_;
  FinalAverage final_;
  std::mutex mutex_;  // of the rest
  std::condition_variable changed_;
  std::set<int> active_;  // who may still ask
  ModelBuffer model_;
  ModelBuffer base_;                  // the model when the trainer last saw it
  std::optional<Listener> listener_;  // ends first
};

}  // namespace

std::unique_ptr<Synchronizer> make_ad_psgd(Communicator& comm, const SynchronizerOptions& options) {
  if (comm.rank() % 2 == 0) return std::make_unique<Active>(comm, options);
  return std::make_unique<Passive>(comm, options);
}

}  // namespace motley::runtime
