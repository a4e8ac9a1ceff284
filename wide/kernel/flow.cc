#include "wide/kernel/flow.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <optional>
#include <vector>

#include "wide/kernel/batch.h"
#include "wide/kernel/kernels.h"
#include "wide/kernel/replicas.h"
#include "wide/kernel/team.h"

namespace motley::wide {
namespace {

constexpr std::size_t kChunk = 256;       // rows that a thread takes at a time
constexpr std::size_t kLossBlock = 32;    // rows of a batch whose losses are added up together
constexpr std::size_t kScoreBlock = 512;  // rows that a thread scores at a time

Tables tables_of(float* state, const Layout& layout) {
  return {.shared = state,
          .linear = state + layout.linear_begin(),
          .factors = state + layout.factors_begin()};
}

// Hands out numbers below n, each once.
class Tickets {
 public:
  explicit Tickets(std::size_t n) : n_(n) {}
  std::optional<std::size_t> next() noexcept {
    const std::size_t i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i < n_) return i;
    return std::nullopt;
  }

 private:
  std::size_t n_;
  std::atomic<std::size_t> next_{0};
};

// What a thread needs for itself, on lines of its own.
struct alignas(64) Worker {
  Floats scratch;
  Floats gradient;  // of one slot, or of what all samples share
  BatchByFeature batch;
  double loss = 0;
};

class CpuFlow final : public Flow {
 public:
  CpuFlow(const ModelOptions& options, const Layout& layout, const FlowOptions& flow)
      : options_(options),
        layout_(layout),
        kernels_(make_kernels(options, layout,
                              flow.lanes > 0 ? static_cast<Lanes>(flow.lanes) : widest_lanes())),
        team_(flow.threads),
        workers_(static_cast<std::size_t>(flow.threads)) {
    for (Worker& worker : workers_) {
      worker.scratch.resize(kernels_.scratch_floats);
      worker.gradient.resize(std::max(layout.width, layout.shared));
    }
  }

  double train(const Samples& samples, std::span<const std::uint64_t> rows,
               const UpdateOptions& options, std::span<float> state) override {
    assert(state.size() == layout_.size());
    const Job job = job_of(options_, layout_, samples, options);
    if (options.batch_rows > 1) return train_batches(job, rows, options.batch_rows, state.data());
    if (team_.size() > 1) return train_hogwild(job, rows, options.merge_rows, state.data());
    LossSum loss;
    kernels_.train(job, rows.data(), rows.size(), tables_of(state.data(), layout_),
                   workers_[0].scratch.data(), loss);
    return loss.sum();
  }

  void score(const Samples& samples, std::span<const float> state, std::span<float> out) override {
    assert(out.size() == samples.rows());
    const Job job = job_of(options_, layout_, samples, {});
    // Scoring writes no weights.
    const Tables tables = tables_of(const_cast<float*>(state.data()), layout_);
    Tickets blocks((out.size() + kScoreBlock - 1) / kScoreBlock);
    team_.run([&](int thread) {
      while (const auto block = blocks.next()) {
        const std::size_t first = *block * kScoreBlock;
        kernels_.score(job, first, std::min(first + kScoreBlock, out.size()), tables,
                       worker(thread).scratch.data(), out.data());
      }
    });
  }

 private:
  Worker& worker(int thread) { return workers_[static_cast<std::size_t>(thread)]; }

  // Threads write cold slots without agreement: the race that test/tsan.supp names.
  [[gnu::noinline]] void hogwild_rows(const Job& job, std::span<const std::uint64_t> rows,
                                      const Tables& tables, Worker& worker, LossSum& loss) {
    kernels_.train(job, rows.data(), rows.size(), tables, worker.scratch.data(), loss);
  }

  double train_hogwild(const Job& job, std::span<const std::uint64_t> rows, std::size_t merge_rows,
                       float* state) {
    if (!replicas_) replicas_.emplace(kernels_, layout_, team_.size());
    if (merge_rows == 0) merge_rows = replicas_->merge_rows();
    const float scale = replicas_->scale(options_.optimizer, std::max(merge_rows, kChunk));
    Tickets chunks((rows.size() + kChunk - 1) / kChunk);
    team_.run([&](int thread) {
      LossSum loss;
      const Tables tables = replicas_->take(thread, state);
      std::size_t apart = 0;
      while (const auto chunk = chunks.next()) {
        const std::size_t first = *chunk * kChunk;
        const std::size_t n = std::min(kChunk, rows.size() - first);
        hogwild_rows(job, rows.subspan(first, n), tables, worker(thread), loss);
        apart += n;
        if (apart < merge_rows) continue;
        replicas_->merge(thread, state, job, scale);
        apart = 0;
      }
      if (apart > 0) replicas_->merge(thread, state, job, scale);
      worker(thread).loss = loss.sum();
    });
    double loss = 0;
    for (const Worker& w : workers_) loss += w.loss;
    return loss;
  }

  double train_batches(const Job& job, std::span<const std::uint64_t> rows, std::size_t batch_rows,
                       float* state) {
    batch_rows = std::min(batch_rows, std::max<std::size_t>(rows.size(), 1));
    position_.resize(layout_.slots);
    sums_.resize(batch_rows * kernels_.sum_bytes / sizeof(float) + 16);
    batch_scratch_.resize(batch_rows * kernels_.scratch_floats);
    slopes_.resize(batch_rows);
    const BatchSums sums{.sums = reinterpret_cast<std::byte*>(sums_.data()),
                         .scratch = batch_scratch_.data(),
                         .slopes = slopes_.data()};
    const Tables tables = tables_of(state, layout_);
    double loss = 0;
    const std::size_t most_blocks = (batch_rows + kLossBlock - 1) / kLossBlock;
    std::vector<double> losses(most_blocks);
    std::optional<Tickets> blocks;
    const auto begin_batch = [&](std::size_t n) {
      blocks.emplace((n + kLossBlock - 1) / kLossBlock);
      std::fill(losses.begin(), losses.end(), 0.0);
    };
    begin_batch(std::min(batch_rows, rows.size()));
    team_.run([&](int thread) {
      Worker& w = worker(thread);
      for (std::size_t first = 0; first < rows.size(); first += batch_rows) {
        const auto batch = rows.subspan(first, std::min(batch_rows, rows.size() - first));
        gather_blocks(job, batch, tables, sums, *blocks, losses);
        w.batch.make(job, batch, {.thread = thread, .threads = team_.size()}, position_);
        team_.meet();  // all sums are there
        const auto segments = w.batch.segments();
        kernels_.update(job, segments.data(), segments.size(), w.batch.edges().data(), tables, sums,
                        w.gradient.data());
        team_.meet();  // all have read what all samples share
        if (thread == 0) {
          kernels_.update_shared(job, batch.size(), tables, sums, w.gradient.data());
          for (const double part : losses) loss += part;
          const std::size_t next = first + batch.size();
          begin_batch(std::min(batch_rows, rows.size() - next));
        }
        team_.meet();
      }
    });
    return loss;
  }

  void gather_blocks(const Job& job, std::span<const std::uint64_t> batch, const Tables& tables,
                     const BatchSums& sums, Tickets& blocks, std::vector<double>& losses) const {
    while (const auto block = blocks.next()) {
      LossSum loss;
      const std::size_t first = *block * kLossBlock;
      kernels_.gather(job, batch.data(), first, std::min(first + kLossBlock, batch.size()), tables,
                      sums, loss);
      losses[*block] = loss.sum();
    }
  }

  ModelOptions options_;
  Layout layout_;
  Kernels kernels_;
  Team team_;
  std::vector<Worker> workers_;
  std::optional<Replicas> replicas_;
  // Of batches; see batch.h and kernels.h.
  std::vector<std::uint32_t> position_;
  Floats sums_;
  Floats batch_scratch_;
  std::vector<float> slopes_;
};

}  // namespace

Job job_of(const ModelOptions& model, const Layout& layout, const Samples& samples,
           const UpdateOptions& options) {
  Job job;
  job.row_begin = samples.row_begin.data();
  job.slots = samples.slots.data();
  job.values = samples.values.data();
  job.fields = samples.fields.data();
  job.labels = samples.labels.data();
  job.weights = samples.weights.empty() ? nullptr : samples.weights.data();
  job.uniform = samples.uniform;
  job.complete = samples.complete;
  job.distinct = samples.distinct;
  job.layout = layout;
  job.loss = model.loss;
  job.optimizer = model.optimizer;
  const float rate = options.learning_rate;
  job.linear = {.learning_rate = rate, .l1 = options.l1, .l2 = options.l2};
  const float factors = options.learning_rate_factors;
  job.factors = {.learning_rate = factors < 0 ? rate : factors,
                 .l1 = options.l1_factors,
                 .l2 = options.l2_factors};
  job.shared = {.learning_rate = rate};
  return job;
}

std::unique_ptr<Flow> make_flow(const ModelOptions& options, const Layout& layout,
                                const FlowOptions& flow) {
  return std::make_unique<CpuFlow>(options, layout, flow);
}

}  // namespace motley::wide
