#include "wide/shard/own_pace.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr Duration kPatience = seconds(3600);

}  // namespace

OwnPace::OwnPace(ShardWorker& worker, const ShardRows& rows, const TrainOptions& options,
                 const ShardOptions& shards)
    : worker_(worker),
      rows_(rows),
      options_(options),
      shards_(shards),
      service_(worker, shards.staleness * (static_cast<std::int64_t>(worker.members()) - 1)) {}

void OwnPace::begin_epoch(std::int64_t number) {
  over_ = false;
  service_.open(rows_.rows());
  resume(number);
}

void OwnPace::resume(std::int64_t number) {
  reducer_.emplace(worker_.comm, *shards_.partial);
  // From then on the controller has others wait for this worker.
  reducer_->announce(number, kPatience);
  reducer_->cancel_announcement();
  // Readers of files that are slow, or of what was saved, are waited for.
  worker_.comm.barrier({.timeout = kPatience}).wait();
}

void OwnPace::pause() {
  reducer_->leave();
  service_.flush();
  const std::span<float> state = worker_.hot.state();
  // However long a step of the slowest takes.
  worker_.comm.all_reduce(state, ReduceOp::kAverage, {.timeout = kPatience, .deterministic = true})
      .wait();
}

std::span<const std::uint64_t> OwnPace::next_rows() {
  if (at_ == order_.size()) {
    order_ = order_of_epoch(rows_.rows(), passes_++, options_);
    std::erase_if(order_, [this](std::uint64_t row) { return !rows_.holds(row); });
    at_ = 0;
  }
  return std::span(order_).subspan(at_, std::min(options_.batch_rows, order_.size() - at_));
}

// The next batch with its weights.
std::optional<Step> OwnPace::pulled() {
  const std::span<const std::uint64_t> rows = next_rows();
  if (over_ || rows.empty()) return std::nullopt;
  Step step;
  step.batch = worker_.finder.find(rows_.held(rows));
  over_ = !service_.pull(step);
  if (over_) return std::nullopt;
  at_ += rows.size();
  slots_asked_ += step.asked.size();
  return step;
}

std::optional<OwnPace::Made> OwnPace::step(std::int64_t number) {
  if (!next_) next_ = pulled();
  if (!next_) return std::nullopt;
  Step step = *std::exchange(next_, std::nullopt);
  // Joined when it goes out of scope, however that comes.
  std::future<std::optional<Step>> ahead;
  if (shards_.pulls == Pulls::kOneStepOld) {
    ahead = std::async(std::launch::async, [this, number] {
      std::optional<Step> next = pulled();
      if (shards_.on_ahead) shards_.on_ahead(number);
      return next;
    });
  }
  if (shards_.on_compute) shards_.on_compute(number);
  worker_.hot.clear_gradients();
  const Made made{.rows = step.batch.samples.rows(),
                  .loss = worker_.engine.train(step, worker_.hot)};
  if (ahead.valid()) next_ = ahead.get();
  if (!std::isfinite(made.loss)) return made;
  service_.push(step);
  if (shards_.on_apply) shards_.on_apply(number);
  average_hot(number);
  return made;
}

void OwnPace::average_hot(std::int64_t number) {
  HotBlock& hot = worker_.hot;
  const std::span<float> state = hot.state(), gradients = hot.gradients();
  mixed_.assign(state.begin(), state.end());
  mixed_.insert(mixed_.end(), gradients.begin(), gradients.end());
  const PartialResult result = reducer_->average(mixed_, number);
  if (!result.solo()) bytes_hot_ += mixed_.size() * sizeof(float);
  std::copy_n(mixed_.begin(), state.size(), state.begin());
  const auto workers = static_cast<float>(worker_.members());
  std::transform(mixed_.begin() + static_cast<std::ptrdiff_t>(state.size()), mixed_.end(),
                 gradients.begin(), [workers](float mean) { return workers * mean; });
  hot.apply();
  service_.publish(state.first(hot.layout().shared * hot.layout().planes));
}

ShardTraffic OwnPace::traffic() const {
  ShardTraffic traffic = service_.traffic();
  traffic.hot = bytes_hot_;
  return traffic;
}

}  // namespace motley::wide
