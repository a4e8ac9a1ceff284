#include "wide/shard/shard_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr Duration kPatience = seconds(3600);  // with a worker that computes
constexpr int kRowsGiver = 0;

}  // namespace

ShardService::ShardService(ShardWorker& worker, std::int64_t staleness)
    : worker_(worker),
      staleness_(staleness),
      timeout_(worker.comm.options().timeout),
      floats_(floats_sent(worker.hot.layout())),
      asks_(worker.comm),
      answers_(worker.comm),
      sent_(static_cast<std::size_t>(worker.comm.size())),
      customers_(sent_.size()) {
  publish(worker.hot.state().first(worker.hot.layout().shared * worker.hot.layout().planes));
  for (const int other : worker.comm.world().ranks()) {
    if (other == worker.comm.rank()) continue;
    listeners_.emplace_back(asks_, std::vector{other}, kPatience,
                            static_cast<runtime::Hearer&>(*this));
  }
}

ShardService::~ShardService() = default;

void ShardService::open(std::uint64_t rows) {
  const std::lock_guard lock(mutex_);
  rows_left_ = rows;
}

void ShardService::publish(std::span<const float> shared) {
  const std::lock_guard lock(mutex_);
  shared_.assign(shared.begin(), shared.end());
}

std::uint64_t ShardService::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

ShardTraffic ShardService::traffic() const {
  ShardTraffic traffic = traffic_;
  const std::lock_guard lock(mutex_);
  traffic.late_weights = bytes_given_;
  return traffic;
}

// --- What this worker asks of others

// Calls body(rank of a keeper, those of step.batch.slots that are asked of it).
template <class Body>
void ShardService::for_keepers(const Step& step, Body body) const {
  std::size_t begin = 0;
  for (std::size_t rank = 0; rank < step.asked_counts.size(); ++rank) {
    const std::size_t n = step.asked_counts[rank];
    body(static_cast<int>(rank), std::span(step.asked).subspan(begin, n));
    begin += n;
  }
}

// Rows of the batch, slots, entries of each.
std::vector<std::int32_t> ShardService::keys_for(const Step& step,
                                                 std::span<const std::uint32_t> asked) const {
  std::vector<std::int32_t> keys{static_cast<std::int32_t>(step.batch.samples.rows())};
  for (const std::uint32_t i : asked)
    keys.push_back(static_cast<std::int32_t>(step.batch.slots[i]));
  for (const std::uint32_t i : asked) keys.push_back(entries_sent(step.batch.entries[i]));
  return keys;
}

void ShardService::check() const {
  if (failure_) throw *failure_;
}

void ShardService::wait_for_all(std::vector<Request>& requests) {
  {
    const std::lock_guard lock(mutex_);
    check();
    waited_for_ = &requests;
  }
  std::exception_ptr failed;
  while (!failed && !requests.empty()) {
    const std::size_t over = wait_any(requests);
    try {
      requests[over].wait();
    } catch (const Error&) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(over));
  }
  const std::lock_guard lock(mutex_);
  waited_for_ = nullptr;
  if (!failed) return;
  check();  // why it was cancelled
  std::rethrow_exception(failed);
}

void ShardService::settle() { wait_for_all(sending_); }

void ShardService::send_letter(int to, Ask what, std::size_t count) {
  Sent& sent = sent_[static_cast<std::size_t>(to)];
  sent.letter = {static_cast<std::int64_t>(what), static_cast<std::int64_t>(count)};
  sending_.push_back(asks_.send(runtime::view_of(sent.letter), to, timeout_));
}

void ShardService::tell_all(Ask what) {
  settle();
  for (int rank = 0; rank < worker_.comm.size(); ++rank) {
    if (rank != worker_.comm.rank()) send_letter(rank, what, 0);
  }
}

bool ShardService::pull(Step& step) {
  worker_.exchange.order_keys(step);
  step.weights.resize(step.batch.slots.size() * floats_);
  settle();
  std::vector<std::vector<float>> weights(sent_.size());  // whether there are rows, then they
  std::vector<Request> coming;
  for_keepers(step, [&](int rank, std::span<const std::uint32_t> asked) {
    const auto at = static_cast<std::size_t>(rank);
    std::vector<std::int32_t> keys = keys_for(step, asked);
    if (rank == worker_.comm.rank()) {
      weights[at] = give(rank, keys);
      return;
    }
    weights[at].resize(1 + asked.size() * floats_);
    coming.push_back(answers_.recv(std::span(weights[at]), rank, timeout_));
    send_letter(rank, Ask::kPull, asked.size());
    Sent& sent = sent_[at];
    sent.keys = std::move(keys);
    sending_.push_back(asks_.send(sent.keys, rank, timeout_));
    traffic_.keys += sizeof(runtime::Letter) + sent.keys.size() * sizeof(std::int32_t);
  });
  wait_for_all(coming);
  for_keepers(step, [&](int rank, std::span<const std::uint32_t> asked) {
    const float* from = weights[static_cast<std::size_t>(rank)].data() + 1;
    for (const std::uint32_t i : asked) {
      std::copy_n(from, floats_, step.weights.data() + i * floats_);
      from += floats_;
    }
  });
  if (weights[kRowsGiver][0] != 0) return true;
  tell_all(Ask::kForget);
  forget(worker_.comm.rank());
  return false;
}

void ShardService::push(const Step& step) {
  settle();
  for_keepers(step, [&](int rank, std::span<const std::uint32_t> asked) {
    Sent& sent = sent_[static_cast<std::size_t>(rank)];
    sent.gradients.resize(asked.size() * floats_);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::copy_n(step.gradients.data() + asked[i] * floats_, floats_,
                  sent.gradients.data() + i * floats_);
    }
    if (rank == worker_.comm.rank()) {
      take(rank, sent.gradients);
      return;
    }
    send_letter(rank, Ask::kPush, asked.size());
    sending_.push_back(asks_.send(sent.gradients, rank, timeout_));
    traffic_.gradients += sizeof(runtime::Letter) + sent.gradients.size() * sizeof(float);
  });
}

void ShardService::flush() {
  std::vector<float> heard(sent_.size());
  std::vector<Request> coming;
  for (int rank = 0; rank < worker_.comm.size(); ++rank) {
    if (rank == worker_.comm.rank()) continue;
    const std::span<float> to = std::span(heard).subspan(static_cast<std::size_t>(rank), 1);
    coming.push_back(answers_.recv(to, rank, timeout_));
  }
  tell_all(Ask::kFlush);
  wait_for_all(coming);
  settle();
}

void ShardService::close() {
  tell_all(Ask::kGone);
  settle();
  std::unique_lock lock(mutex_);
  customers_[static_cast<std::size_t>(worker_.comm.rank())].gone = true;
  const auto all_gone = [this] {
    return std::ranges::all_of(customers_, [](const Customer& c) { return c.gone; });
  };
  const bool ended = changed_.wait_for(lock, timeout_, all_gone);
  check();
  if (ended) return;
  throw Error(ErrorCode::kTimeout,
              fmt::format("train sharded: after {:.1f} s not all workers have ended. Check the "
                          "others, or raise the timeout",
                          to_seconds(timeout_)));
}

// --- What others ask of this worker, on a thread for each

bool ShardService::heard(int from, const runtime::Letter& letter) {
  const auto n = static_cast<std::size_t>(letter[1]);
  const auto what = static_cast<Ask>(letter[0]);
  Customer& customer = customers_[static_cast<std::size_t>(from)];
  if (what == Ask::kPull) {
    std::vector<std::int32_t> keys(1 + 2 * n);
    asks_.recv(keys, from, timeout_).wait();
    answer(from, give(from, keys));
  } else if (what == Ask::kPush) {
    std::vector<float> gradients(n * floats_);
    asks_.recv(gradients, from, timeout_).wait();
    take(from, gradients);
  } else if (what == Ask::kForget) {
    forget(from);
  } else if (what == Ask::kFlush) {
    answer(from, {0});
  } else {
    customer.answered.wait();
    const std::lock_guard lock(mutex_);
    customer.gone = true;
    changed_.notify_all();
    return false;
  }
  return true;
}

// Without the features that it kept nothing goes on.
void ShardService::lost(int from, const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = error;
  if (waited_for_ != nullptr) {
    for (Request& request : *waited_for_) request.cancel();
  }
  customers_[static_cast<std::size_t>(from)].gone = true;
  changed_.notify_all();
}

void ShardService::answer(int to, std::vector<float> floats) {
  Customer& customer = customers_[static_cast<std::size_t>(to)];
  customer.answered.wait();
  customer.answer = std::move(floats);
  customer.answered = answers_.send(customer.answer, to, timeout_);
}

std::vector<float> ShardService::give(int to, std::span<const std::int32_t> keys) {
  const std::size_t n = keys.size() / 2;
  Asked asked;
  asked.slots.assign(keys.begin() + 1, keys.begin() + 1 + static_cast<std::ptrdiff_t>(n));
  for (const std::int32_t entries : keys.subspan(1 + n))
    asked.entries.push_back(static_cast<std::int16_t>(entries));
  std::vector<float> out(1 + n * floats_);
  const std::lock_guard lock(mutex_);
  if (worker_.comm.rank() == kRowsGiver && rows_left_ > 0) {
    out[0] = 1;
    rows_left_ -= std::min(rows_left_, static_cast<std::uint64_t>(keys[0]));
  }
  for (std::size_t i = 0; i < n; ++i) {
    worker_.shards.read(static_cast<std::uint64_t>(asked.slots[i]), out.data() + 1 + i * floats_);
  }
  Customer& customer = customers_[static_cast<std::size_t>(to)];
  if (to != worker_.comm.rank()) bytes_given_ += out.size() * sizeof(float);
  asked.others = steps_ - customer.steps;
  customer.asked.push_back(std::move(asked));
  return out;
}

void ShardService::forget(int from) {
  const std::lock_guard lock(mutex_);
  customers_[static_cast<std::size_t>(from)].asked.pop_back();
}

void ShardService::take(int from, std::span<const float> gradients) {
  const std::lock_guard lock(mutex_);
  Customer& customer = customers_[static_cast<std::size_t>(from)];
  const Asked asked = std::move(customer.asked.front());
  customer.asked.pop_front();
  const bool too_old = steps_ - customer.steps - asked.others > staleness_;
  ++steps_;
  ++customer.steps;
  if (too_old) {
    ++left_out_;
    return;
  }
  const Pushed pushed{
      .slots = asked.slots, .entries = asked.entries, .gradients = gradients.data()};
  worker_.shards.add_up({&pushed, 1});
  worker_.shards.apply(shared_.data());
}

}  // namespace motley::wide
