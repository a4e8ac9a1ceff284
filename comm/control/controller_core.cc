#include "comm/control/controller_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "comm/control/progress.h"
#include "comm/control/succession.h"

namespace motley {
namespace {

constexpr int kScansPerLease = 8;
constexpr Duration kHeldUp =
    std::chrono::milliseconds(100);  // later than this is not ordinary jitter

}  // namespace

ControllerCore::ControllerCore(const ControllerConfig& config, TimePoint now)
    : config_(config),
      matchmaker_(std::max(config.size, 0)),
      groups_(config.epoch),
      metrics_(std::max(config.size, 0)) {
  if (config.size < 1) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("controller: size is {}. A job has at least one rank.", config.size));
  }
  if (config.lease <= Duration::zero()) {
    throw Error(ErrorCode::kInvalid, fmt::format("controller: lease is {} s. It must be positive.",
                                                 to_seconds(config.lease)));
  }
  members_.resize(static_cast<std::size_t>(config.size));
  next_scan_ = now + config.lease / kScansPerLease;
}

void ControllerCore::on_message(const std::string& from, const Message& message, TimePoint now) {
  now_ = now;
  if (message.type == MessageType::kHello) return hello(from, message, now);
  const auto found = rank_of_.find(from);
  if (found == rank_of_.end() || message.epoch != config_.epoch) {  // not of this job, or time
    ++refused_;
    const bool may_be_ours = message.type == MessageType::kHeartbeat && message.epoch != 0;
    if (may_be_ours && found == rank_of_.end()) send(from, {.type = MessageType::kUnknown});
    if (may_be_ours && found != rank_of_.end()) tell_epoch(found->second);
    return;
  }
  const int rank = found->second;
  Member& sender = member(rank);
  if (sender.state == State::kDead) {
    return send(
        from,
        {.type = MessageType::kFenced, .seq = message.seq, .rank = rank, .value = sender.why});
  }
  sender.heard = now;
  if (message.type == MessageType::kHeartbeat) return heartbeat(rank, message);
  if (message.type == MessageType::kExited) return exited(rank, message);
  if (message.type == MessageType::kCollect) return collect(rank, message);
  if (message.type == MessageType::kCalls) return pass_on_calls(rank, message);
  if (const auto lane = lane_of(message.type)) request(rank, *lane, message);
}

void ControllerCore::hello(const std::string& from, const Message& message, TimePoint now) {
  const auto refuse = [&](const std::string& why) {
    ++refused_;
    send(from, {.type = MessageType::kRefused,
                .rank = message.rank,
                .number = static_cast<std::int64_t>(ErrorCode::kInvalid),
                .value = why});
  };
  if (!same_token(message.value, config_.token)) {
    return refuse("the token is not this job's. Set MOTLEY_TOKEN to the token of the controller.");
  }
  if (message.count != config_.size) {
    return refuse(
        fmt::format("size is {} here, {} at the controller. Start all with the same size.",
                    message.count, config_.size));
  }
  if (message.rank < 0 || message.rank >= config_.size) {
    return refuse(fmt::format("rank {} is outside [0, {}).", message.rank, config_.size));
  }
  Member& holder = member(message.rank);
  if (holder.state == State::kAbsent) {
    holder.state = State::kLive;
    holder.identity = from;
    rank_of_[from] = message.rank;
    ++joined_;
    ++live_;
  } else if (holder.state == State::kDead && holder.identity.empty()) {
    holder.identity = from;
    rank_of_[from] = message.rank;
  } else if (holder.identity != from) {
    return refuse(
        fmt::format("rank {} is held by another process already. Give each process its own rank.",
                    message.rank));
  }
  if (holder.state == State::kDead) {  // reported lost before it said hello, or since
    return send(from, {.type = MessageType::kFenced, .rank = message.rank, .value = holder.why});
  }
  holder.heard = now;
  if (message.number == 0) holder.recalled = true;  // it comes from nowhere: nothing to tell
  if (message.key == "left" && !std::exchange(holder.grouped, true)) {
    stop_training(message.rank, AbortReason::kWithdrew);
  }
  begin_epoch_after(static_cast<std::uint32_t>(message.number));
  for (const std::int32_t dead : message.ranks) {
    if (dead == message.rank) continue;
    report_lost(dead,
                fmt::format("rank {} knew it before the controller was restarted", message.rank));
  }
  send(from,
       {.type = MessageType::kWelcome, .rank = message.rank, .number = config_.lease.count()});
}

// What a rank that still speaks of the epoch before was told of this one has been lost.
void ControllerCore::tell_epoch(int rank) {
  const Member& lost = member(rank);
  if (lost.state == State::kDead) {
    send(lost.identity, {.type = MessageType::kFenced, .rank = rank, .value = lost.why});
  } else {
    send(lost.identity, {.type = MessageType::kWelcome, .number = config_.lease.count()});
  }
}

void ControllerCore::succeed(std::uint32_t last, TimePoint now) {
  now_ = now;
  begin_epoch_after(last);
}

// A rank comes from a controller before this one, of epoch `last`.
void ControllerCore::begin_epoch_after(std::uint32_t last) {
  constexpr int kRestartsShift = 16;
  if (last == 0 || last == config_.epoch) return;
  if (last >> kRestartsShift < config_.epoch >> kRestartsShift) return;
  const std::uint32_t own = config_.epoch & ((1u << kRestartsShift) - 1);
  config_.epoch = ((last >> kRestartsShift) + 1) << kRestartsShift | own;
  groups_.begin_epoch(config_.epoch);
  remembers_ = false;
  rebuilt_ = now_ + kLeasesToCome * config_.lease;
  for (const Member& each : members_) {
    if (each.state != State::kLive) continue;
    send(each.identity, {.type = MessageType::kWelcome, .number = config_.lease.count()});
  }
}

// Of those that have not come back, the ones that others wait for in a group are dead. The rest may
// have left in good order before; they are not waited for, and may come yet.
void ControllerCore::give_up_absent() {
  rebuilt_ = TimePoint::max();
  for (int rank = 0; rank < config_.size; ++rank) {
    if (member(rank).state != State::kAbsent) continue;
    if (groups_.contains(rank)) {
      report_lost(rank, kDidNotComeBack);
    } else {
      stop_training(rank, AbortReason::kDied);
      announce(supplies_.gone(rank));
    }
  }
}

void ControllerCore::heartbeat(int rank, const Message& message) {
  const std::string& to = member(rank).identity;
  if (message.value.size() <= kMaxProgressBytes) {
    member(rank).progress = message.value;
    member(rank).progress_time = now_;
  }
  const auto total = static_cast<std::int64_t>(losses_.size());
  for (std::int64_t i = std::max<std::int64_t>(0, message.number); i < total; ++i) {
    const Loss& loss = losses_[static_cast<std::size_t>(i)];
    send(to, {.type = MessageType::kLost, .rank = loss.rank, .number = i, .value = loss.why});
  }
  send(to, {.type = MessageType::kHeartbeat, .number = total});
}

void ControllerCore::exited(int rank, const Message& message) {
  if (message.rank < 0 || message.rank >= config_.size) return;
  if (member(message.rank).state == State::kDeparted) {
    return send(member(rank).identity, {.type = MessageType::kDeparted, .rank = message.rank});
  }
  if (message.rank == rank) return report_lost(rank, message.value);
  report_lost(message.rank, fmt::format("its process has ended, as rank {} on its host saw", rank));
}

void ControllerCore::on_time(TimePoint now) {
  now_ = now;
  serve_due();
  form_groups();  // a hold may be over
  if (now < next_scan_) return;
  const Duration late = now - next_scan_;
  next_scan_ = now + config_.lease / kScansPerLease;
  metrics_.late(late);
  for (Member& each : members_) {
    if (late > kHeldUp) each.heard += late;
  }
  if (now >= rebuilt_) give_up_absent();
  if (now >= gathered_) give_up_strangers();
  for (int rank = 0; rank < config_.size; ++rank) {
    const Member& each = member(rank);
    if (each.state != State::kLive || now - each.heard < config_.lease) continue;
    report_lost(rank, fmt::format("it was silent for {:.2f} s (lease {:.2f} s)",
                                  to_seconds(now - each.heard), to_seconds(config_.lease)));
  }
}

void ControllerCore::report_lost(int rank, const std::string& why) {
  if (rank < 0 || rank >= config_.size) return;
  Member& lost = member(rank);
  if (lost.state == State::kDead || lost.state == State::kDeparted) return;
  const bool was_live = lost.state == State::kLive;
  if (was_live) --live_;
  lost.state = State::kDead;
  lost.why = why;
  losses_.push_back({rank, why});
  if (was_live) {
    send(lost.identity, {.type = MessageType::kFenced, .rank = rank, .value = why});
  }
  for (const Member& each : members_) {
    if (each.state != State::kLive) continue;
    send(each.identity, {.type = MessageType::kLost,
                         .rank = rank,
                         .number = static_cast<std::int64_t>(losses_.size()) - 1,
                         .value = why});
  }
  stop_training(rank, AbortReason::kDied);
  announce(supplies_.gone(rank));
}

void ControllerCore::request(int rank, Lane lane, const Message& message) {
  LaneState& state = member(rank).lanes[static_cast<std::size_t>(lane)];
  // What depends on what others remember has to wait for that: it is repeated.
  const bool depends = message.type == MessageType::kAdd || lane == Lane::kSupply;
  if (depends && !remembers_all()) return;
  if (message.seq < state.seq) return;  // given up by its sender
  if (message.seq == state.seq) {
    if (state.reply) send(member(rank).identity, *state.reply);
    return;
  }
  state.seq = message.seq;
  state.reply.reset();
  if (lane == Lane::kStore) {
    store_request(rank, message);
  } else if (lane == Lane::kGroup) {
    group_request(rank, message);
  } else if (lane == Lane::kMemory) {
    recall(rank, message);
  } else if (lane == Lane::kSupply) {
    announce(supplies_.request(rank, message));
  } else {
    report(rank, message);
  }
}

void ControllerCore::store_request(int rank, const Message& message) {
  member(rank).waits_for.clear();
  switch (message.type) {
    case MessageType::kSet:
      set(message.key, message.value);
      return answer(rank, Lane::kStore, {.type = MessageType::kOk});
    case MessageType::kGet: {
      const auto found = values_.find(message.key);
      if (found != values_.end()) {
        return answer(rank, Lane::kStore, {.type = MessageType::kValue, .value = found->second});
      }
      member(rank).waits_for = message.key;
      std::vector<int>& waiters = waiters_[message.key];
      if (std::find(waiters.begin(), waiters.end(), rank) == waiters.end()) waiters.push_back(rank);
      return;
    }
    case MessageType::kAdd:
      return add(rank, message);
    case MessageType::kBye:
      member(rank).state = State::kDeparted;
      --live_;
      stop_training(rank, AbortReason::kDied);
      announce(supplies_.gone(rank));
      return answer(rank, Lane::kStore, {.type = MessageType::kOk});
    default:
      return;
  }
}

void ControllerCore::set(const std::string& key, std::string value) {
  const std::string& stored = values_[key] = std::move(value);
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::vector<int> waiters = std::move(found->second);
  waiters_.erase(found);
  for (const int rank : waiters) {
    Member& waiter = member(rank);
    if (waiter.state != State::kLive || waiter.waits_for != key) continue;
    waiter.waits_for.clear();
    answer(rank, Lane::kStore, {.type = MessageType::kValue, .value = stored});
  }
}

void ControllerCore::add(int rank, const Message& message) {
  std::int64_t sum = 0;
  if (const auto found = values_.find(message.key); found != values_.end()) {
    const char* end = found->second.data() + found->second.size();
    const auto parsed = std::from_chars(found->second.data(), end, sum);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      return answer_error(
          rank, Lane::kStore, ErrorCode::kInvalid,
          fmt::format("key \"{}\" holds no counter. Use another key.", message.key));
    }
  }
  // Wraps on overflow, as unsigned arithmetic does.
  sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum) +
                                  static_cast<std::uint64_t>(message.number));
  set(message.key, std::to_string(sum));
  answer(rank, Lane::kStore, {.type = MessageType::kValue, .number = sum});
}

void ControllerCore::announce(std::vector<SupplyDesk::Answer> answers) {
  for (SupplyDesk::Answer& each : answers) {
    answer(each.rank, Lane::kSupply, std::move(each.message));
  }
}

void ControllerCore::send(const std::string& to, Message message) {
  message.epoch = config_.epoch;
  output_.push_back({to, std::move(message)});
}

void ControllerCore::answer(int rank, Lane lane, Message message) {
  Member& to = member(rank);
  LaneState& state = to.lanes[static_cast<std::size_t>(lane)];
  message.seq = state.seq;
  message.count = static_cast<std::int32_t>(lane);
  message.epoch = config_.epoch;
  state.reply = message;
  send(to.identity, std::move(message));
}

void ControllerCore::answer_error(int rank, Lane lane, ErrorCode code, const std::string& why) {
  answer(rank, lane,
         {.type = MessageType::kError, .number = static_cast<std::int64_t>(code), .value = why});
}

GroupMetrics ControllerCore::metrics() const {
  GroupMetrics metrics = metrics_.snapshot();
  metrics.epoch = config_.epoch;
  metrics.live = live_;
  metrics.training = matchmaker_.training();
  metrics.waiting = matchmaker_.waiting();
  metrics.running = static_cast<int>(groups_.size());
  metrics.group_size = matchmaker_.group_size();
  metrics.components = matchmaker_.graph().components();
  metrics.spans_disconnected = matchmaker_.graph().spans_disconnected();
  metrics.holds = matchmaker_.holds();
  metrics.holds_in_vain = matchmaker_.holds_in_vain();
  metrics.groups = groups_.counts();
  metrics.consensus = matchmaker_.sizer().consensus();
  double taken_part = 0;
  for (WorkerMetrics& worker : metrics.workers) {
    worker.step = matchmaker_.step_of(worker.rank);
    worker.trains = members_[static_cast<std::size_t>(worker.rank)].trains;
    if (worker.trains) taken_part += static_cast<double>(worker.groups);
  }
  for (WorkerMetrics& worker : metrics.workers) {
    if (!worker.trains || taken_part == 0) continue;
    worker.participation = static_cast<double>(worker.groups) * metrics.training / taken_part;
  }
  return metrics;
}

std::vector<ControllerCore::Output> ControllerCore::take_output() {
  return std::exchange(output_, {});
}

}  // namespace motley
