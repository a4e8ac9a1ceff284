#include "wide/cli/batcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string>
#include <utility>

namespace motley::wide {

Batcher::Batcher(Predict predict, const Options& options)
    : predict_(std::move(predict)), options_(options), thread_([this] { work(); }) {}

Batcher::~Batcher() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  arrived_.notify_all();
  thread_.join();
}

Batcher::Counts Batcher::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.waiting_rows = waiting_rows_;
  return counts;
}

Batcher::Answer Batcher::predict(Dataset rows, std::chrono::milliseconds deadline) {
  const auto request = std::make_shared<Request>();
  const std::size_t n = rows.rows();
  request->rows = std::move(rows);
  std::unique_lock lock(mutex_);
  if (stopping_ || waiting_rows_ + n > options_.waiting_rows) {
    return {.kind = Answer::Kind::kBusy,
            .predictions = {},
            .error = fmt::format("{} rows wait already, and with {} more they would exceed the "
                                 "limit {}. Ask again later",
                                 waiting_rows_, n, options_.waiting_rows)};
  }
  waiting_.push_back(request);
  waiting_rows_ += n;
  arrived_.notify_one();
  if (answered_.wait_for(lock, deadline, [&] { return request->done; })) {
    return std::move(request->answer);
  }
  request->given_up = true;
  return {.kind = Answer::Kind::kLate, .predictions = {}, .error = "the deadline has passed"};
}

void Batcher::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    arrived_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    Batch batch = next_batch();
    lock.unlock();
    answer(batch);
    lock.lock();
    ++counts_.batches;
    for (const auto& request : batch) {
      request->done = true;
      counts_.rows += request->answer.predictions.size();
    }
    answered_.notify_all();
  }
}

Batcher::Batch Batcher::next_batch() {
  Batch batch;
  std::size_t rows = 0;
  while (!waiting_.empty()) {
    const std::size_t n = waiting_.front()->rows.rows();
    if (!batch.empty() && rows + n > options_.batch_rows) break;
    rows += n;
    waiting_rows_ -= n;
    if (!waiting_.front()->given_up) batch.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return batch;
}

void Batcher::answer(Batch& batch) const {
  if (batch.empty()) return;
  const std::string& recipe = batch[0]->rows.recipe;
  const bool alike = std::all_of(batch.begin(), batch.end(), [&recipe](const auto& request) {
    return request->rows.recipe == recipe;
  });
  if (!alike) return answer_each(batch);  // some may not be of the model
  try {
    Dataset all = batch[0]->rows;
    for (std::size_t i = 1; i < batch.size(); ++i) append(all, batch[i]->rows);
    const std::vector<float> predictions = predict_(std::move(all));
    auto next = predictions.begin();
    for (const auto& request : batch) {
      const auto end = next + static_cast<std::ptrdiff_t>(request->rows.rows());
      request->answer.predictions.assign(next, end);
      next = end;
    }
  } catch (const std::exception& error) {
    if (batch.size() == 1) {
      batch[0]->answer = {.kind = Answer::Kind::kBad, .predictions = {}, .error = error.what()};
      return;
    }
    answer_each(batch);  // one of them spoils it for all
  }
}

void Batcher::answer_each(Batch& batch) const {
  for (auto& request : batch) {
    Batch alone{request};
    answer(alone);
  }
}

}  // namespace motley::wide
