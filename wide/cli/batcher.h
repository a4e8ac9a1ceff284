// wide/cli/batcher.h: predictions for requests that come at any time, scored together.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "wide/dataset.h"

namespace motley::wide {

// One thread predicts; any thread asks. What waits meanwhile makes up the next batch, so that
// batches grow with load and a lone request waits for nobody.
class Batcher {
 public:
  // A prediction for each row. May throw, and is then asked again for each request alone.
  using Predict = std::function<std::vector<float>(Dataset)>;
  struct Options {
    std::size_t batch_rows = 4096;       // predicted together, at most, unless a request has more
    std::size_t waiting_rows = 1 << 20;  // refuse more
  };
  struct Answer {
    enum class Kind { kOk, kBusy, kLate, kBad } kind = Kind::kOk;
    std::vector<float> predictions;
    std::string error;
  };
  struct Counts {
    std::uint64_t rows = 0;
    std::uint64_t batches = 0;
    std::size_t waiting_rows = 0;  // now
  };

  Batcher(Predict predict, const Options& options);
  ~Batcher();  // answers all that wait first
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  // Predictions for the rows, or kBusy at once, kLate after `deadline`, kBad for rows that Predict
  // throws at.
  Answer predict(Dataset rows, std::chrono::milliseconds deadline);
  Counts counts() const;

 private:
  struct Request {
    Dataset rows;
    Answer answer;
    bool done = false;
    bool given_up = false;
  };
  using Batch = std::vector<std::shared_ptr<Request>>;

  void work();
  Batch next_batch();
  void answer(Batch& batch) const;
  void answer_each(Batch& batch) const;

  const Predict predict_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable answered_;
  std::deque<std::shared_ptr<Request>> waiting_;
  std::size_t waiting_rows_ = 0;
  bool stopping_ = false;
  Counts counts_;
  std::thread thread_;
};

}  // namespace motley::wide
