#include "wide/sharded_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <numeric>
#include <utility>

#include "comm/error.h"
#include "wide/shard/own_pace.h"
#include "wide/shard/shard_worker.h"
#include "wide/shard/whole_state.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

// Where training stands.
struct Position {
  std::int64_t steps = 0;
  int epoch = 0;          // begun
  std::size_t row = 0;    // of the epoch, of all workers; at their own pace, of this one
  double loss = 0;        // of this worker's rows of the epoch
  std::uint64_t own = 0;  // those rows
  std::uint64_t rows_trained = 0;
};

}  // namespace

class ShardedRun::Impl {
 public:
  Impl(Communicator& comm, RowParts train, std::optional<Dataset> validation,
       const TrainOptions& options, const ShardOptions& shards)
      : Impl(comm, ShardRows(comm, std::move(train), options), std::move(validation), options,
             shards) {}

  bool next_step() {
    return with_survivors([this] {
      if (pace_) return next_own_step();
      if (!done_ && now_.row == train_.rows()) end_epoch();
      if (done_) return false;
      make_step();
      return true;
    });
  }

  void collect(const Model::PutFloats& put) {
    if (pace_ && !done_) pace_->pause();
    collect_state(worker_.comm, worker_.exchange.group(), worker_.map, model_.layout(),
                  worker_.shards, worker_.hot, put);
  }
  void save(const std::string& path) {
    with_survivors([&] {
      if (worker_.comm.rank() != worker_.map.alive().front()) {
        collect([](std::span<const float>) {});
      } else {
        model_.save(path, [this](const Model::PutFloats& put) { collect(put); });
      }
      return true;
    });
  }

  const Position& now() const noexcept { return now_; }
  const std::vector<EpochReport>& reports() const noexcept { return reports_; }
  const BestEpoch& best() const noexcept { return best_; }
  const ShardMap& map() const noexcept { return worker_.map; }
  ShardTraffic traffic() const {
    ShardTraffic sum = worker_.exchange.traffic();
    if (!pace_) return sum;
    const ShardTraffic own = pace_->traffic();
    sum.keys += own.keys;
    sum.late_weights += own.late_weights;
    sum.gradients += own.gradients;
    sum.copies += own.copies;
    sum.hot += own.hot;
    return sum;
  }
  std::uint64_t slots_asked() const noexcept { return pace_ ? pace_->slots_asked() : slots_asked_; }
  std::uint64_t left_out() const { return pace_ ? pace_->left_out() : 0; }
  std::uint64_t rows_planned() const noexcept {
    return static_cast<std::uint64_t>(options_.epochs) * train_.rows() / worker_.members();
  }

 private:
  Impl(Communicator& comm, ShardRows rows, std::optional<Dataset> validation,
       const TrainOptions& options, const ShardOptions& shards)
      : Impl(comm, std::move(rows),
             Start(rows.take_facts(), options, shards, validation.has_value()),
             std::move(validation), shards) {}
  Impl(Communicator& comm, ShardRows&& rows, Start start, std::optional<Dataset> validation,
       const ShardOptions& shards)
      : options_(start.options),
        shard_options_(shards),
        train_(prepared(std::move(rows), start, shards.copies)),
        worker_(comm, start, train_.shape(), options_, shards),
        model_(std::move(start.model)) {
    if (validation) validation_ = model_.prepare(std::move(*validation));
    if (shards.partial) pace_.emplace(worker_, train_, options_, shard_options_);
    begin_epoch();
  }
  static ShardRows prepared(ShardRows&& rows, const Start& start, int copies) {
    const std::size_t n = rows.rows();
    std::vector<std::uint64_t> order(n);
    std::iota(order.begin(), order.end(), std::uint64_t{0});
    if (start.options.shuffles) order = shuffled(n, start.options.seed);
    rows.prepare(start.model, std::move(order), copies);
    return std::move(rows);
  }

  // Tries again without those that die in it.
  template <class Body>
  bool with_survivors(Body body) {
    while (true) {
      try {
        return body();
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost) throw;
        go_on_without(error);
      }
    }
  }

  bool next_own_step() {
    while (!done_) {
      if (const std::optional<OwnPace::Made> made = pace_->step(now_.steps)) {
        check_finite(made->loss, now_.row + made->rows);
        count(made->rows, made->rows, made->loss);
        return true;
      }
      pace_->pause();
      end_epoch();
    }
    return false;
  }

  // All rows of the step that begins at `row` of the epoch.
  std::span<const std::uint64_t> rows_of_step(std::size_t row) const {
    return std::span(order_).subspan(
        row, std::min(worker_.members() * options_.batch_rows, order_.size() - row));
  }
  void make_step() {
    const std::span<const std::uint64_t> rows = rows_of_step(now_.row);
    Step step;
    if (next_) {
      step = std::move(*next_);
      next_.reset();
    } else {
      step = worker_.pulled_now(train_.held(rows));
      worker_.note(step);
    }
    const std::size_t after = now_.row + rows.size();
    // Joined when it goes out of scope, however that comes.
    std::future<Step> ahead;
    if (after < train_.rows())
      ahead = std::async(std::launch::async, [this, after] { return ahead_of(after); });
    if (shard_options_.on_compute) shard_options_.on_compute(now_.steps);
    HotBlock& hot = worker_.hot;
    hot.clear_gradients();
    const double loss = worker_.engine.train(step, hot);
    hot.gradients()[Layout::kUpdates] = static_cast<float>(loss);  // has no gradient
    worker_.exchange.send_gradients(step);
    worker_.exchange.add_up(hot.gradients());
    worker_.shards.add_up(worker_.exchange.pushed(step));
    worker_.exchange.send_sums(worker_.shards);
    if (ahead.valid()) next_ = ahead.get();
    if (shard_options_.on_apply) shard_options_.on_apply(now_.steps);
    apply(step, rows.size(), loss);
    if (next_) worker_.exchange.send_late(*next_, worker_.shards);
  }

  // While this step computes.
  Step ahead_of(std::size_t row) {
    Step step = worker_.pulled(
        train_.held(rows_of_step(row)), [&, now = worker_.noted](std::uint64_t slot) {
          return shard_options_.pulls == Pulls::kExact && worker_.changes(slot, now);
        });
    worker_.note(step);
    if (shard_options_.on_ahead) shard_options_.on_ahead(now_.steps);
    return step;
  }

  void apply(const Step& step, std::size_t rows, double loss) {
    check_finite(worker_.hot.gradients()[Layout::kUpdates], now_.row + rows);
    before_ = now_;
    worker_.shards.apply(worker_.hot.shared());
    worker_.hot.apply();
    slots_asked_ += step.asked.size();
    count(rows, step.batch.samples.rows(), loss);
  }
  void check_finite(double loss, std::size_t row) const {
    if (std::isfinite(loss)) return;
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: diverged in epoch {} after {} rows: the loss is {}. Lower the "
                            "learning rate, or use instance normalisation",
                            now_.epoch, row, loss));
  }
  void count(std::size_t rows, std::size_t own, double loss) {
    now_.row += rows;
    now_.loss += loss;
    now_.own += own;
    now_.rows_trained += own;
    ++now_.steps;
  }

  void begin_epoch() {
    if (pace_) {
      pace_->begin_epoch();
    } else {
      order_ = order_of_epoch(train_.rows(), now_.epoch, options_);
    }
    ++now_.epoch;
    now_.row = 0;
    now_.loss = 0;
    now_.own = 0;
  }

  void end_epoch() { finish_epoch(measured_epoch()); }

  // Nothing changes, so that it can be called again.
  EpochReport measured_epoch() {
    EpochReport report{.epoch = now_.epoch, .train_loss = 0, .validation = std::nullopt};
    const Group& group = worker_.exchange.group();
    std::vector<double> own{now_.loss, static_cast<double>(now_.own)}, all(2 * worker_.members());
    worker_.comm.all_gather(own, all, {.group = &group}).wait();
    double rows = 0;
    for (std::size_t m = 0; m < worker_.members(); ++m) {
      report.train_loss += all[2 * m];
      rows += all[2 * m + 1];
    }
    report.train_loss /= rows;
    if (validation_) report.validation = validate();
    return report;
  }

  void finish_epoch(const EpochReport& report) {
    reports_.push_back(report);
    if (best_.is_better(report) && report.validation) {
      worker_.shards.remember();
      best_hot_.assign(worker_.hot.state().begin(), worker_.hot.state().end());
    }
    done_ = best_.ends(report, options_);
    if (done_ && best_.epoch() != now_.epoch && report.validation) {
      worker_.shards.recall();
      std::copy(best_hot_.begin(), best_hot_.end(), worker_.hot.state().begin());
    }
    if (options_.on_epoch) options_.on_epoch(report);
    if (!done_) begin_epoch();
  }

  Evaluation validate() {
    std::vector<float> scores = worker_.scores(*validation_, options_.batch_rows);
    for (std::size_t r = 0; r < scores.size(); ++r) {
      scores[r] += model_.offset();
      if (std::isfinite(scores[r])) continue;
      throw Error(ErrorCode::kInvalid,
                  fmt::format("train: the score of validation row {} is {}. Its values are too "
                              "large; train with instance normalisation, or scale them",
                              r + 1, scores[r]));
    }
    return evaluate(scores, validation_->labels,
                    {.loss = model_.options().loss, .weights = validation_->weights});
  }

  // The dead are left out, and all that live stand where the one does that made the fewest steps;
  // at their own pace, each between two of its own.
  void go_on_without(Error lost) {
    next_.reset();
    while (true) {
      const std::size_t before = worker_.members();
      for (const int rank : lost.ranks()) {
        if (rank != worker_.comm.rank()) worker_.map.remove(rank);
      }
      if (worker_.members() == before) throw lost;
      worker_.exchange.regroup();
      try {
        meet_again();
        return;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kPeerLost || error.ranks().empty()) throw;
        lost = error;
      }
    }
  }

  void meet_again() {
    // Those that read files or, at their own pace, make a step, are waited for.
    const CallOptions among_all{.group = &worker_.exchange.group(), .timeout = seconds(3600)};
    if (pace_) {
      pace_->leave_out_dead();
      worker_.comm.barrier(among_all).wait();
    }
    end_same_epochs();
    if (pace_) {
      pace_->pause();
    } else {
      worker_.forget_notes();
    }
    hand_over(worker_.comm, worker_.exchange.group(), worker_.map, worker_.shards,
              {.remembered = best_hot_.empty() ? Remembered::kNothing : Remembered::kStates,
               .copies = pace_ ? Copies::kMayLag : Copies::kOfOneStep});
    train_.hold(worker_.map.alive(), model_);
    if (pace_) pace_->begin_anew();
    worker_.comm.barrier(among_all).wait();
  }

  // A step that some have made and others have not is undone; an epoch that some have ended, all
  // have, with the same report.
  void end_same_epochs() {
    const Group& group = worker_.exchange.group();
    const std::vector<std::int64_t> own{now_.steps, static_cast<std::int64_t>(reports_.size())};
    std::vector<std::int64_t> all(2 * worker_.members());
    worker_.comm.all_gather(own, all, {.group = &group}).wait();
    std::size_t foremost = 0;  // in epochs
    std::int64_t fewest = now_.steps;
    for (std::size_t m = 0; m < worker_.members(); ++m) {
      fewest = std::min(fewest, all[2 * m]);
      if (all[2 * m + 1] > all[2 * foremost + 1]) foremost = m;
    }
    if (!pace_ && now_.steps > fewest) {
      worker_.shards.undo();
      worker_.hot.undo();
      now_ = before_;
    }
    static_assert(std::is_trivially_copyable_v<EpochReport>);
    EpochReport last;
    if (!reports_.empty()) last = reports_.back();
    worker_.comm
        .broadcast(std::span(reinterpret_cast<std::int8_t*>(&last), sizeof last),
                   worker_.map.alive()[foremost], {.group = &group})
        .wait();
    if (own[1] < all[2 * foremost + 1]) finish_epoch(last);
  }

  TrainOptions options_;
  ShardOptions shard_options_;
  ShardRows train_;
  std::optional<Samples> validation_;
  ShardWorker worker_;
  Model model_;                       // without its state
  std::vector<std::uint64_t> order_;  // of rows, in this epoch
  std::optional<Step> next_;
  std::optional<OwnPace> pace_;  // at which workers go that do not wait for each other
  std::uint64_t slots_asked_ = 0;
  Position now_, before_;  // the latter: before the last step
  std::vector<EpochReport> reports_;
  BestEpoch best_;
  Floats best_hot_;
  bool done_ = false;
};

ShardedRun::ShardedRun(Communicator& comm, RowParts train, std::optional<Dataset> validation,
                       const TrainOptions& options, const ShardOptions& shards)
    : impl_(
          std::make_unique<Impl>(comm, std::move(train), std::move(validation), options, shards)) {}
ShardedRun::ShardedRun(ShardedRun&&) noexcept = default;
ShardedRun::~ShardedRun() = default;

bool ShardedRun::next_step() { return impl_->next_step(); }
std::int64_t ShardedRun::step() const noexcept { return impl_->now().steps; }
int ShardedRun::epoch() const noexcept { return impl_->now().epoch; }
double ShardedRun::running_loss() const noexcept {
  const Position& now = impl_->now();
  return now.own > 0 ? now.loss / static_cast<double>(now.own) : 0;
}
std::uint64_t ShardedRun::rows_trained() const noexcept { return impl_->now().rows_trained; }
std::uint64_t ShardedRun::rows_planned() const noexcept { return impl_->rows_planned(); }
const std::vector<EpochReport>& ShardedRun::reports() const noexcept { return impl_->reports(); }
int ShardedRun::best_epoch() const noexcept { return impl_->best().epoch(); }
const std::vector<int>& ShardedRun::workers() const noexcept { return impl_->map().alive(); }
std::size_t ShardedRun::features() const noexcept { return impl_->map().slots(); }
ShardTraffic ShardedRun::traffic() const noexcept { return impl_->traffic(); }
std::uint64_t ShardedRun::left_out() const noexcept { return impl_->left_out(); }
std::uint64_t ShardedRun::slots_asked() const noexcept { return impl_->slots_asked(); }
void ShardedRun::save(const std::string& path) { impl_->save(path); }

std::vector<float> ShardedRun::gather_state() {
  std::vector<float> state;
  impl_->collect(
      [&](std::span<const float> part) { state.insert(state.end(), part.begin(), part.end()); });
  return state;
}

}  // namespace motley::wide
