#include "runtime/sharding.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "comm/error.h"
#include "comm/supply.h"
#include "runtime/permutation.h"

namespace motley::runtime {
namespace {

// How many ranges of an epoch's positions are kept; a few for each worker are left at any time.
constexpr std::size_t kMostRanges = 1024;

// The order of one epoch.
Permutation order_of(std::int64_t samples, std::uint64_t seed, std::int64_t epoch) {
  const auto turn = static_cast<std::uint64_t>(epoch) * 0x9e3779b97f4a7c15u;
  return Permutation(samples, seed ^ turn);
}

void check_positive(const char* who, const char* what, std::int64_t value) {
  if (value >= 1) return;
  throw Error(ErrorCode::kInvalid,
              fmt::format("{}: {} is {}. Use a number from 1 upwards.", who, what, value));
}

}  // namespace

GlobalBatches::GlobalBatches(int rank, int size, const GlobalBatchOptions& options)
    : rank_(rank), size_(size), options_(options), seed_(static_cast<std::int64_t>(options.seed)) {
  check_positive("GlobalBatches", "samples", options.samples);
  check_positive("GlobalBatches", "batch", options.batch);
  check_micro_batches("GlobalBatches", options.micro_batches, size);
}

GlobalBatches::Part GlobalBatches::next() {
  const std::int64_t begin = counted_ % options_.samples;
  const std::int64_t batch = std::min(options_.batch, options_.samples - begin);
  const Permutation order = order_of(options_.samples, static_cast<std::uint64_t>(seed_), epoch());
  const int parts = options_.micro_batches > 0 ? options_.micro_batches : size_;
  const auto cut = [&](int part) { return begin + batch * part / parts; };
  samples_.clear();
  sizes_.clear();
  for (int part = rank_; part < parts; part += size_) {
    for (std::int64_t at = cut(part); at < cut(part + 1); ++at) samples_.push_back(order(at));
    sizes_.push_back(cut(part + 1) - cut(part));
  }
  if (options_.micro_batches == 0 && samples_.empty()) sizes_.clear();
  counted_ += batch;
  const auto mine = static_cast<double>(samples_.size());
  return {.samples = samples_,
          .batch = batch,
          .share = mine / static_cast<double>(batch),
          .sizes = sizes_};
}

void GlobalBatches::list(State& state) {
  state.add("samples counted", counted_, StatePolicy::kMaximum);
  state.add("order seed", seed_, StatePolicy::kMaximum);
}

void check_micro_batches(const char* who, int micro_batches, int workers) {
  if (micro_batches >= 0 && micro_batches % workers == 0) return;
  throw Error(
      ErrorCode::kInvalid,
      fmt::format("{}: micro_batches is {}, for {} workers. Use a multiple of the number of "
                  "workers, or 0.",
                  who, micro_batches, workers));
}

struct SampleQueue::Impl {
  Impl(Communicator& comm_, const SampleQueueOptions& options_)
      : comm(comm_), options(options_), seed(static_cast<std::int64_t>(options_.seed)) {
    check_positive("SampleQueue", "samples", options.samples);
    open({});
  }

  void open(std::optional<std::vector<Range>> uncounted) {
    supply.reset();
    supply.emplace(comm, fmt::format("{}/{}/{}", options.name, epoch, loads),
                   SupplyOptions{.count = options.samples,
                                 .claim = options.claim,
                                 .uncounted = std::move(uncounted),
                                 .timeout = options.timeout});
  }

  Communicator& comm;
  SampleQueueOptions options;
  std::optional<Supply> supply;  // of positions in the epoch's order
  Range part;                    // of the last next(), if not counted
  std::vector<std::int64_t> samples;
  std::int64_t epoch = 0;
  std::int64_t seed;       // the bits of options.seed, to be saved
  std::int64_t loads = 0;  // each begins a supply of its own
  // What list() tells of: ranges that are not counted, then empty ones.
  std::int64_t ranges = 0;
  std::array<std::int64_t, 2 * kMostRanges> bounds{};
};

SampleQueue::SampleQueue(Communicator& comm, const SampleQueueOptions& options)
    : impl_(std::make_unique<Impl>(comm, options)) {}

SampleQueue::SampleQueue(SampleQueue&&) noexcept = default;
SampleQueue::~SampleQueue() = default;

std::span<const std::int64_t> SampleQueue::next(std::int64_t most) {
  Impl& it = *impl_;
  it.part = it.supply->next(most);
  const Permutation order =
      order_of(it.options.samples, static_cast<std::uint64_t>(it.seed), it.epoch);
  it.samples.clear();
  for (std::int64_t at = it.part.begin; at < it.part.end; ++at) it.samples.push_back(order(at));
  return it.samples;
}

void SampleQueue::count() {
  const Range part = std::exchange(impl_->part, {});
  if (part.count() > 0) impl_->supply->count(part);
}

void SampleQueue::leave() {
  impl_->part = {};
  impl_->supply->give_back();
}

std::int64_t SampleQueue::epoch() const noexcept { return impl_->epoch; }

void SampleQueue::next_epoch() {
  Impl& it = *impl_;
  if (it.part.count() > 0) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("SampleQueue: next_epoch() with {} samples of epoch {} that are not "
                            "counted. Count them first, or leave.",
                            it.part.count(), it.epoch));
  }
  ++it.epoch;
  it.open({});
}

void SampleQueue::list(State& state) {
  Impl& it = *impl_;
  state.add("epoch", it.epoch, StatePolicy::kMaximum);
  state.add("order seed", it.seed, StatePolicy::kMaximum);
  state.add("positions loaded", it.loads, StatePolicy::kMaximum);
  state.add("ranges", it.ranges, StatePolicy::kMaximum);
  state.add({"uncounted",
             {kMostRanges, 2},
             View(std::span<std::int64_t>(it.bounds)),
             StatePolicy::kMaximum});
}

void SampleQueue::save_position(const Group* group) {
  Impl& it = *impl_;
  (void)it.supply->uncounted();  // tells what this worker has counted
  it.comm.barrier({.group = group}).wait();
  const std::vector<Range> left = it.supply->uncounted();
  it.comm.barrier({.group = group}).wait();
  if (left.size() > kMostRanges) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("SampleQueue: what is not counted of epoch {} is in {} pieces; {} can "
                            "be saved. Save at the end of the epoch.",
                            it.epoch, left.size(), kMostRanges));
  }
  it.bounds.fill(0);
  it.ranges = static_cast<std::int64_t>(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    it.bounds[2 * i] = left[i].begin;
    it.bounds[2 * i + 1] = left[i].end;
  }
}

void SampleQueue::load_position() {
  Impl& it = *impl_;
  ++it.loads;
  it.part = {};
  std::vector<Range> left;
  const auto ranges = static_cast<std::size_t>(
      std::clamp<std::int64_t>(it.ranges, 0, static_cast<std::int64_t>(kMostRanges)));
  for (std::size_t i = 0; i < ranges; ++i) left.push_back({it.bounds[2 * i], it.bounds[2 * i + 1]});
  it.open(std::move(left));
}

}  // namespace motley::runtime
