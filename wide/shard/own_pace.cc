#include "wide/shard/own_pace.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "comm/error.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

constexpr Duration kPatience = seconds(3600);

std::vector<std::uint64_t> sorted(std::vector<std::uint64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

OwnPace::OwnPace(ShardWorker& worker, const ShardRows& rows, const TrainOptions& options,
                 const ShardOptions& shards)
    : worker_(worker),
      rows_(rows),
      options_(options),
      shards_(shards),
      service_(worker, shards.staleness) {}

void OwnPace::begin_epoch() {
  over_ = false;
  taken_ = 0;
}

void OwnPace::resume(std::int64_t number) {
  reducer_.emplace(worker_.comm, *shards_.partial);
  // From then on the controller has others wait for this worker.
  reducer_->announce(number, kPatience);
  reducer_->cancel_announcement();
  const CallOptions among_all{.group = &worker_.exchange.group(), .timeout = kPatience};
  std::vector<std::int64_t> taken{static_cast<std::int64_t>(taken_)};
  // Readers of files that are slow, or of what was saved, are waited for.
  worker_.comm.all_reduce(taken, ReduceOp::kSum, among_all).wait();
  const std::uint64_t rows = rows_.rows();
  const std::uint64_t left = rows - std::min(rows, static_cast<std::uint64_t>(taken[0]));
  over_ = left == 0;
  service_.open(left);
  worker_.comm.barrier(among_all).wait();
}

void OwnPace::leave_groups() {
  if (reducer_) reducer_->leave();
  reducer_.reset();
}

void OwnPace::pause() {
  leave_groups();
  service_.flush();
  // However long a step of the slowest takes.
  const CallOptions among_all{
      .group = &worker_.exchange.group(), .timeout = kPatience, .deterministic = true};
  worker_.comm.barrier(among_all).wait();
  service_.tell_copies();
  service_.flush();
  worker_.comm.all_reduce(worker_.hot.state(), ReduceOp::kAverage, among_all).wait();
}

void OwnPace::leave_out_dead() {
  leave_groups();  // others, that wait for one, may end their steps
  if (next_) {
    taken_ -= next_->batch.samples.rows();
    at_ -= next_->batch.samples.rows();
    next_.reset();
  }
  service_.leave_out_dead();
}

void OwnPace::begin_anew() {
  service_.begin_anew();
  if (passes_ == 0) return;
  // The rest of the pass is what it holds by now, but for what it has been through.
  order_.resize(at_);
  const std::vector<std::uint64_t> made = sorted(std::exchange(order_, rows_of_pass(passes_ - 1)));
  std::erase_if(order_, [&](std::uint64_t row) { return std::ranges::binary_search(made, row); });
  at_ = 0;
}

std::vector<std::uint64_t> OwnPace::rows_of_pass(int pass) const {
  std::vector<std::uint64_t> rows = order_of_epoch(rows_.rows(), pass, options_);
  std::erase_if(rows, [this](std::uint64_t row) { return !rows_.holds(row); });
  return rows;
}

std::span<const std::uint64_t> OwnPace::next_rows() {
  if (at_ == order_.size()) {
    order_ = rows_of_pass(passes_++);
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
  taken_ += rows.size();
  slots_asked_ += step.asked.size();
  return step;
}

// Where a worker has died this step is made all the same, and the next one throws.
std::optional<Step> OwnPace::pulled_or_none() {
  try {
    return pulled();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
    return std::nullopt;
  }
}

std::optional<OwnPace::Made> OwnPace::step(std::int64_t number) {
  if (!reducer_) resume(number);
  if (!next_) next_ = pulled();
  if (!next_) return std::nullopt;
  Step step = *std::exchange(next_, std::nullopt);
  // Joined when it goes out of scope, however that comes.
  std::future<std::optional<Step>> ahead;
  if (shards_.pulls == Pulls::kOneStepOld) {
    ahead = std::async(std::launch::async, [this, number] {
      std::optional<Step> next = pulled_or_none();
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
