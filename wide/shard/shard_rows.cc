#include "wide/shard/shard_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/error.h"
#include "wide/defaults.h"
#include "wide/read/number.h"
#include "wide/shard/batch_slots.h"
#include "wide/train/settle.h"

namespace motley::wide {
namespace {

const CallOptions kPatient{.timeout = seconds(3600)};  // slow disks and large files

// What every worker gives, one after the other.
template <class T>
std::vector<T> gathered(Communicator& comm, const std::vector<T>& own) {
  const auto workers = static_cast<std::size_t>(comm.size());
  const std::vector<std::int64_t> mine{static_cast<std::int64_t>(own.size())};
  std::vector<std::int64_t> sizes(workers);
  comm.all_gather(mine, sizes, kPatient).wait();
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::size_t sum = 0;
  for (const std::size_t n : counts) sum += n;
  std::vector<T> all(sum);
  comm.all_gather_v(own, {.data = all, .counts = counts}, kPatient).wait();
  return all;
}

// The rows of all parts, from those of this worker's, to what stands before each.
std::vector<std::uint64_t> first_of(Communicator& comm, const std::map<int, RowPart>& own) {
  std::vector<std::int64_t> rows;
  for (const auto& [number, part] : own)
    rows.push_back(static_cast<std::int64_t>(part.rows.rows()));
  std::vector<std::uint64_t> first{0};
  for (const std::int64_t n : gathered(comm, rows))
    first.push_back(first.back() + static_cast<std::uint64_t>(n));
  return first;
}

std::vector<std::uint32_t> fields_of(const std::map<int, RowPart>& parts) {
  std::vector<std::uint32_t> all;
  for (const auto& [number, part] : parts) {
    std::vector<std::uint32_t> some(part.rows.fields.begin(), part.rows.fields.end());
    some.insert(some.end(), all.begin(), all.end());
    std::sort(some.begin(), some.end());
    some.erase(std::unique(some.begin(), some.end()), some.end());
    all = std::move(some);
  }
  return all;
}

// Numbers of 32 bits on their way.
std::vector<std::int32_t> sent(std::span<const std::uint32_t> numbers) {
  std::vector<std::int32_t> out;
  for (const std::uint32_t n : numbers) out.push_back(static_cast<std::int32_t>(n));
  return out;
}

}  // namespace

ShardRows::ShardRows(Communicator& comm, RowParts source, const TrainOptions& options)
    : comm_(comm), source_(std::move(source)), options_(options) {
  read_own();
  choose();
  gather_facts();
}

void ShardRows::read_own() {
  std::exception_ptr failure;
  try {
    for (int i = 0; i < kPartsOfWorker; ++i) {
      const int part = comm_.rank() * kPartsOfWorker + i;
      read_.emplace(part, source_->part(part, parts()));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  std::vector<std::int64_t> own{failure ? 1 : 0, 0, 0, 0};
  for (const auto& [number, part] : read_) {
    own[1] |= part.zero ? 1 : 0;
    own[1] |= part.minus_one ? 2 : 0;
    own[2] = static_cast<std::int64_t>(part.rows.format);
    own[3] = static_cast<std::int64_t>(hash_text(1, part.rows.recipe));
  }
  const std::vector<std::int64_t> all = gathered(comm_, own);
  if (failure) std::rethrow_exception(failure);
  std::int64_t labels = 0;
  for (std::size_t at = 0; at < all.size(); at += own.size()) {
    const std::size_t rank = at / own.size();
    if (all[at] != 0) {
      throw Error(ErrorCode::kInvalid, fmt::format("train: worker {} could not read its part of "
                                                   "the rows; its message says why",
                                                   rank));
    }
    labels |= all[at + 1];
    if (all[at + 2] == own[2] && all[at + 3] == own[3]) continue;
    throw Error(ErrorCode::kInvalid,
                fmt::format("train: workers {} and {} read rows of {} and {} in different ways. "
                            "Give them the same files, and --format",
                            comm_.rank(), rank, name(static_cast<Format>(own[2])),
                            name(static_cast<Format>(all[at + 2]))));
  }
  if (labels == 3) source_->check_whole();
  first_read_ = first_of(comm_, read_);
}

void ShardRows::choose() {
  for (auto& [number, part] : read_) {
    const std::uint64_t first = first_read_[static_cast<std::size_t>(number)];
    part.rows = chosen_part(std::move(part.rows), first, options_);
  }
  first_ = first_of(comm_, read_);
  if (rows() > 0) return;
  if (first_read_.back() == 0) throw Error(ErrorCode::kInvalid, "train: the data set has no rows");
  throw Error(ErrorCode::kInvalid,
              fmt::format("train: {} rows of the data set are left of {}, as the negative rate is "
                          "{}. Give more rows, or raise it",
                          rows(), first_read_.back(), options_.negative_rate));
}

void ShardRows::gather_facts() {
  std::vector<double> sums{0, 0};
  Frequencies own;
  for (const auto& [number, part] : read_) {
    for (const float label : part.rows.labels) sums[0] += static_cast<double>(label);
    sums[1] += sum_of_features(part.rows);
    own.add(part.rows.ids);
    facts_.recipe = part.rows.recipe;
  }
  comm_.all_reduce(sums, ReduceOp::kSum, {.timeout = kPatient.timeout, .deterministic = true})
      .wait();
  facts_.mean_label = sums[0] / static_cast<double>(rows());
  facts_.mean_features = std::max(1.0, sums[1] / static_cast<double>(rows()));
  const std::vector<std::int32_t> ids = gathered(comm_, sent(own.ids()));
  const std::vector<std::int64_t> entries =
      gathered(comm_, std::vector<std::int64_t>(own.entries().begin(), own.entries().end()));
  Frequencies all;
  for (std::size_t i = 0; i < ids.size(); ++i)
    all.add(static_cast<std::uint32_t>(ids[i]), static_cast<std::uint64_t>(entries[i]));
  facts_.dictionary = all.dictionary();
  for (const std::int32_t field : gathered(comm_, sent(fields_of(read_))))
    facts_.fields.push_back(static_cast<std::uint32_t>(field));
  std::sort(facts_.fields.begin(), facts_.fields.end());
  const auto repeated = std::unique(facts_.fields.begin(), facts_.fields.end());
  facts_.fields.erase(repeated, facts_.fields.end());
}

void ShardRows::prepare(const Model& model, std::vector<std::uint64_t> order, int copies) {
  order_ = std::move(order);
  std::vector<std::int64_t> flags{1, 1};
  for (auto& [number, part] : read_) {
    Samples samples = model.prepare(std::move(part.rows));
    if (samples.rows() > 0) {
      flags[0] &= samples.complete ? 1 : 0;
      flags[1] &= samples.distinct ? 1 : 0;
    }
    held_.insert_or_assign(number, std::move(samples));
  }
  read_.clear();
  if (copies == 1 || comm_.size() == 1) source_.reset();
  comm_.all_reduce(flags, ReduceOp::kMin, kPatient).wait();
  shape_.complete = flags[0] != 0;
  shape_.distinct = flags[1] != 0;
}

Samples ShardRows::held(std::span<const std::uint64_t> rows) const {
  std::vector<const Samples*> by_part(static_cast<std::size_t>(parts()), nullptr);
  Samples out = shape_;
  out.uniform = true;
  for (const auto& [number, samples] : held_) {
    by_part[static_cast<std::size_t>(number)] = &samples;
    out.uniform = out.uniform && (samples.uniform || samples.rows() == 0);
  }
  for (const std::uint64_t i : rows) {
    const std::uint64_t row = order_[i];
    const auto part = static_cast<std::size_t>(part_of(row));
    if (by_part[part] != nullptr) append_row(out, *by_part[part], row - first_[part]);
  }
  return out;
}

int ShardRows::part_of(std::uint64_t row) const {
  return static_cast<int>(std::upper_bound(first_.begin(), first_.end(), row) - first_.begin()) - 1;
}

int ShardRows::holder(int part, const std::vector<int>& alive) const {
  const int first = part / kPartsOfWorker;
  if (std::ranges::binary_search(alive, first)) return first;
  return alive[static_cast<std::size_t>(part) % alive.size()];
}

void ShardRows::hold(const std::vector<int>& alive, const Model& model) {
  for (int part = 0; part < parts(); ++part) {
    if (holder(part, alive) != comm_.rank()) {
      held_.erase(part);
      continue;
    }
    if (held_.contains(part)) continue;
    const auto at = static_cast<std::size_t>(part);
    Dataset rows = chosen_part(source_.value().part(part, parts()).rows, first_read_[at], options_);
    if (rows.rows() != first_[at + 1] - first_[at]) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("train: part {} of the rows had {} rows, and has {} now. Leave files "
                              "alone while they are trained on",
                              part, first_[at + 1] - first_[at], rows.rows()));
    }
    held_.insert_or_assign(part, model.prepare(std::move(rows)));
  }
}

}  // namespace motley::wide
