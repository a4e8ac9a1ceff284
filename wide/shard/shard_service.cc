#include "wide/shard/shard_service.h"

#include <algorithm>
#include <utility>

#include "comm/error.h"

namespace motley::wide {
namespace {

constexpr Duration kPatience = seconds(3600);  // with a worker that computes

runtime::Letter letter_of(Ask what, std::size_t slots) {
  return {static_cast<std::int64_t>(what), static_cast<std::int64_t>(slots)};
}

// Waits for each, whatever becomes of the others, so that lines to the living stay in order. Throws
// what went wrong: a death, if it is one, as that may be why the rest did.
void wait_for_all(std::vector<Request>& requests) {
  std::optional<Error> failed;
  for (Request& request : requests) {
    try {
      request.wait();
    } catch (const Error& error) {
      if (!failed || error.code() == ErrorCode::kPeerLost) failed = error;
    }
  }
  requests.clear();
  if (failed) throw *failed;
}

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
  begin_anew();
  for (const int other : worker.comm.world().ranks()) {
    if (other == worker.comm.rank()) continue;
    listeners_.try_emplace(other, asks_, std::vector{other}, kPatience,
                           static_cast<runtime::Hearer&>(*this));
  }
}

ShardService::~ShardService() = default;

void ShardService::open(std::uint64_t rows) {
  const std::lock_guard lock(mutex_);
  rows_left_ = rows;
}

void ShardService::leave_out_dead() {
  const std::vector<int>& alive = worker_.map.alive();
  std::erase_if(listeners_, [&](const auto& listener) {
    return !std::ranges::binary_search(alive, listener.first);
  });
}

void ShardService::begin_anew() {
  const std::lock_guard lock(mutex_);
  for (Customer& customer : customers_) customer.asked.clear();
  rows_giver_ = worker_.map.alive().front();
  members_ = static_cast<std::int64_t>(worker_.members());
  news_.emplace(worker_.map, worker_.comm.rank());
  telling_.clear();
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
  traffic.copies = bytes_told_;
  return traffic;
}

// --- What this worker asks of others

// Calls body(rank of a keeper, those of step.batch.slots that are asked of it).
template <class Body>
void ShardService::for_keepers(const Step& step, Body body) const {
  std::size_t begin = 0;
  for (std::size_t member = 0; member < step.asked_counts.size(); ++member) {
    const std::size_t n = step.asked_counts[member];
    body(worker_.map.alive()[member], std::span(step.asked).subspan(begin, n));
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
  const std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  for (const int rank : worker_.map.alive()) {
    const std::optional<Error>& lost = customers_[static_cast<std::size_t>(rank)].lost;
    if (lost) throw *lost;
  }
}

void ShardService::settle(std::vector<Request>& sending) {
  try {
    wait_for_all(sending);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeerLost) throw;
  }
}

void ShardService::post(int to, const Sent& sent, std::vector<Request>& requests) {
  const std::lock_guard lock(posting_);
  requests.push_back(asks_.send(std::span<const std::int64_t>(sent.letter), to, timeout_));
  if (!sent.keys.empty()) requests.push_back(asks_.send(sent.keys, to, timeout_));
  if (!sent.floats.empty()) requests.push_back(asks_.send(sent.floats, to, timeout_));
}

void ShardService::tell_all(Ask what) {
  settle(sending_);
  for (const int rank : worker_.map.alive()) {
    if (rank == worker_.comm.rank()) continue;
    Sent& sent = sent_[static_cast<std::size_t>(rank)];
    sent = {.letter = letter_of(what, 0)};
    post(rank, sent, sending_);
  }
}

bool ShardService::pull(Step& step) {
  worker_.exchange.order_keys(step);
  step.weights.resize(step.batch.slots.size() * floats_);
  settle(sending_);
  check();
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
    traffic_.keys += sizeof(runtime::Letter) + keys.size() * sizeof(std::int32_t);
    sent_[at] = {.letter = letter_of(Ask::kPull, asked.size()), .keys = std::move(keys)};
    post(rank, sent_[at], sending_);
  });
  wait_for_all(coming);
  for_keepers(step, [&](int rank, std::span<const std::uint32_t> asked) {
    const float* from = weights[static_cast<std::size_t>(rank)].data() + 1;
    for (const std::uint32_t i : asked) {
      std::copy_n(from, floats_, step.weights.data() + i * floats_);
      from += floats_;
    }
  });
  const auto giver = static_cast<std::size_t>(worker_.map.alive().front());
  if (weights[giver][0] != 0) return true;
  tell_all(Ask::kForget);
  forget(worker_.comm.rank());
  return false;
}

void ShardService::push(const Step& step) {
  settle(sending_);
  for_keepers(step, [&](int rank, std::span<const std::uint32_t> asked) {
    Sent& sent = sent_[static_cast<std::size_t>(rank)];
    sent = {.letter = letter_of(Ask::kPush, asked.size()), .keys = {}, .floats = {}};
    sent.floats.resize(asked.size() * floats_);
    for (std::size_t i = 0; i < asked.size(); ++i) {
      std::copy_n(step.gradients.data() + asked[i] * floats_, floats_,
                  sent.floats.data() + i * floats_);
    }
    if (rank == worker_.comm.rank()) {
      take(rank, sent.floats);
      return;
    }
    post(rank, sent, sending_);
    traffic_.gradients += sizeof(runtime::Letter) + sent.floats.size() * sizeof(float);
  });
}

void ShardService::flush() {
  settle(sending_);
  check();
  std::vector<float> heard(sent_.size());
  std::vector<Request> coming;
  for (const int rank : worker_.map.alive()) {
    if (rank == worker_.comm.rank()) continue;
    const std::span<float> to = std::span(heard).subspan(static_cast<std::size_t>(rank), 1);
    coming.push_back(answers_.recv(to, rank, timeout_));
  }
  tell_all(Ask::kFlush);
  wait_for_all(coming);
  settle(sending_);
}

void ShardService::tell_copies() {
  for (auto& [keeper, telling] : telling_) settle(telling.requests);
  {
    const std::lock_guard lock(mutex_);
    for (const int keeper : news_->keepers()) tell(keeper, telling_[keeper]);
  }
  for (auto& [keeper, telling] : telling_) settle(telling.requests);
}

// --- What others ask of this worker, on a thread for each

bool ShardService::heard(int from, const runtime::Letter& letter) {
  const auto n = static_cast<std::size_t>(letter[1]);
  const auto what = static_cast<Ask>(letter[0]);
  if (what == Ask::kPull) {
    std::vector<std::int32_t> keys(1 + 2 * n);
    asks_.recv(keys, from, timeout_).wait();
    answer(from, give(from, keys));
  } else if (what == Ask::kPush) {
    std::vector<float> gradients(n * floats_);
    if (n > 0) asks_.recv(gradients, from, timeout_).wait();
    take(from, gradients);
  } else if (what == Ask::kCopy) {
    std::vector<std::int32_t> slots(n);
    std::vector<float> states(n * slot_floats(worker_.hot.layout()));
    asks_.recv(slots, from, timeout_).wait();
    asks_.recv(states, from, timeout_).wait();
    put_copies(slots, states);
  } else if (what == Ask::kForget) {
    forget(from);
  } else {
    answer(from, {0});
  }
  return true;
}

void ShardService::lost(int from, const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (error.code() == ErrorCode::kPeerLost) {
    customers_[static_cast<std::size_t>(from)].lost =
        Error(ErrorCode::kPeerLost, error.what(), {from});
  } else if (!failure_) {
    failure_ = error;
  }
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
  if (worker_.comm.rank() == rows_giver_ && rows_left_ > 0) {
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
  const bool too_old = steps_ - customer.steps - asked.others > staleness_ * (members_ - 1);
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
  news_->changed(asked.slots);
  for (const int keeper : news_->keepers()) {
    Telling& telling = telling_[keeper];
    ++telling.pushes;
    const bool is_time = telling.pushes >= static_cast<std::size_t>(members_);
    if (is_time && is_there(telling)) tell(keeper, telling);
  }
}

void ShardService::put_copies(std::span<const std::int32_t> slots, std::span<const float> states) {
  const std::size_t n = slot_floats(worker_.hot.layout());
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < slots.size(); ++i)
    worker_.shards.put(static_cast<std::uint64_t>(slots[i]), states.data() + i * n);
}

void ShardService::tell(int keeper, Telling& telling) {
  telling.pushes = 0;
  SlotStates news = news_->take(keeper, worker_.shards, worker_.hot.layout());
  if (news.slots.empty()) return;
  telling.sent = {.letter = letter_of(Ask::kCopy, news.slots.size()),
                  .keys = std::move(news.slots),
                  .floats = std::move(news.states)};
  post(keeper, telling.sent, telling.requests);
  bytes_told_ += sizeof(runtime::Letter) + telling.sent.keys.size() * sizeof(std::int32_t) +
                 telling.sent.floats.size() * sizeof(float);
}

// What was told last. Whether its keeper has died, those say that wait for its answers.
bool ShardService::is_there(Telling& telling) {
  while (!telling.requests.empty()) {
    try {
      if (!telling.requests.back().test()) return false;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost && !failure_) failure_ = error;
    }
    telling.requests.pop_back();
  }
  return true;
}

}  // namespace motley::wide
