#include "runtime/bucket.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "comm/error.h"

namespace motley::runtime {

Buckets::Buckets(Communicator& comm, View gradients, const std::vector<Shape>& shapes,
                 const BucketOptions& options)
    : comm_(comm), gradients_(gradients), options_(options), firsts_{0} {
  for (const Shape& shape : shapes) firsts_.push_back(firsts_.back() + shape.count());
  if (firsts_.back() != gradients.count) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("Buckets: {} gradients, but the shapes have {} elements.",
                            gradients.count, firsts_.back()));
  }
  const std::size_t element = size_bytes(gradients.dtype);
  std::size_t end = gradients.count;
  for (std::size_t shape = shapes.size(); shape-- > 0;) {
    const std::size_t first = firsts_[shape];
    if (end == first) continue;
    if ((end - first) * element < options.bytes && first != 0) continue;
    buckets_.push_back({.first = first, .count = end - first, .missing = 0, .request = {}});
    end = first;
  }
  reset();
}

void Buckets::begin(double share) { share_ = share; }

void Buckets::ready(std::size_t first, std::size_t count) {
  const auto begin = std::lower_bound(firsts_.begin(), firsts_.end(), first);
  const auto end = std::lower_bound(begin, firsts_.end(), first + count);
  const bool whole =
      begin != firsts_.end() && *begin == first && end != firsts_.end() && *end == first + count;
  const auto shape = is_ready_.begin() + (begin - firsts_.begin());
  if (!whole || std::find(shape, shape + (end - begin), true) != shape + (end - begin)) {
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("Buckets: ready({}, {}) of {} gradients: these are not whole shapes, or "
                    "were ready already. Pass those of each shape once a step.",
                    first, count, gradients_.count));
  }
  if (start_ == TimePoint{}) start_ = comm_.clock().now();
  std::fill(shape, shape + (end - begin), true);
  for (Bucket& bucket : buckets_) {
    const std::size_t from = std::max(first, bucket.first);
    const std::size_t to = std::min(first + count, bucket.first + bucket.count);
    if (from < to) bucket.missing -= to - from;
  }
  start_complete();
}

// In one order on all workers, whatever was ready first here.
void Buckets::start_complete() {
  for (; started_ < buckets_.size() && buckets_[started_].missing == 0; ++started_) {
    Bucket& bucket = buckets_[started_];
    const View part = gradients_.slice(bucket.first, bucket.count);
    const bool weighs = share_ >= 0;
    bucket.request = comm_.all_reduce(part, weighs ? ReduceOp::kWeightedSum : ReduceOp::kAverage,
                                      {.timeout = options_.timeout,
                                       .deterministic = options_.deterministic,
                                       .weight = weighs ? share_ : 1});
    if (const auto call = comm_.recorder().last_started()) bucket.call = call->number;
  }
}

void Buckets::wait() {
  if (started_ < buckets_.size()) {
    const Bucket& bucket = buckets_[started_];
    const std::size_t missing = bucket.missing, first = bucket.first, count = bucket.count;
    reset();
    throw Error(
        ErrorCode::kInvalid,
        fmt::format("Buckets: wait() while {} gradients of elements {} to {} are not ready. "
                    "Call ready() for every parameter in each step.",
                    missing, first, first + count));
  }
  std::exception_ptr trouble;
  for (Bucket& bucket : buckets_) {
    try {
      bucket.request.wait();
    } catch (const Error&) {
      if (!trouble) trouble = std::current_exception();
    }
  }
  note_times();
  reset();
  if (trouble) std::rethrow_exception(trouble);
}

// As the communicator recorded them, whoever made the progress.
void Buckets::note_times() {
  times_.clear();
  const std::vector<CallRecord> calls = comm_.recorder().last();
  for (const Bucket& bucket : buckets_) {
    BucketTimes times{.first = bucket.first, .count = bucket.count};
    const auto call = std::find_if(calls.rbegin(), calls.rend(), [&](const CallRecord& each) {
      return each.number == bucket.call && each.group == comm_.world().tag();
    });
    if (call != calls.rend()) {
      times.begun = std::max(Duration{}, call->started - start_);
      times.done = std::max(Duration{}, call->ended - start_);
    }
    times_.push_back(times);
  }
}

void Buckets::reset() noexcept {
  for (Bucket& bucket : buckets_) {
    bucket.request = Request();  // cancels what is unfinished
    bucket.missing = bucket.count;
  }
  is_ready_.assign(firsts_.size() - 1, false);
  started_ = 0;
  share_ = -1;
  start_ = {};
}

}  // namespace motley::runtime
