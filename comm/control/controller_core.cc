#include "comm/control/controller_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "comm/control/progress.h"

namespace motley {
namespace {

constexpr int kScansPerLease = 8;
constexpr Duration kHeldUp =
    std::chrono::milliseconds(100);  // later than this is not ordinary jitter

// Takes as long for any two tokens of equal length.
bool same_token(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

}  // namespace

ControllerCore::ControllerCore(const ControllerConfig& config, TimePoint now)
    : config_(config), participants_(config.size), groups_(config.epoch) {
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
  if (found == rank_of_.end() || message.epoch != config_.epoch) {  // not of this job
    ++refused_;
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
  } else if (holder.identity != from) {
    return refuse(
        fmt::format("rank {} is held by another process already. Give each process its own rank.",
                    message.rank));
  }
  if (holder.state == State::kDead) {  // reported lost before it said hello, or since
    return send(from, {.type = MessageType::kFenced, .rank = message.rank, .value = holder.why});
  }
  holder.heard = now;
  send(from,
       {.type = MessageType::kWelcome, .rank = message.rank, .number = config_.lease.count()});
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
  form_groups();  // a hold may be over
  if (now < next_scan_) return;
  const Duration late = now - next_scan_;
  next_scan_ = now + config_.lease / kScansPerLease;
  for (Member& each : members_) {
    if (late > kHeldUp) each.heard += late;
  }
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
  stop_training(rank);
  announce(supplies_.gone(rank));
}

void ControllerCore::request(int rank, Lane lane, const Message& message) {
  LaneState& state = member(rank).lanes[static_cast<std::size_t>(lane)];
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
      stop_training(rank);
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

void ControllerCore::group_request(int rank, const Message& message) {
  switch (message.type) {
    case MessageType::kReady:
      return ready(rank, message);
    case MessageType::kDone:
    case MessageType::kFail:
      return ended(rank, message);
    case MessageType::kWithdraw:
      withdraw(rank);
      return answer(rank, Lane::kGroup, {.type = MessageType::kOk});
    case MessageType::kLeave:
      stop_training(rank);
      return answer(rank, Lane::kGroup, {.type = MessageType::kOk});
    default:
      return;
  }
}

void ControllerCore::ready(int rank, const Message& message) {
  withdraw(rank);  // a new kReady gives up an earlier one that its sender did not see through
  Member& sender = member(rank);
  if (participants_ == 0) group_size_ = 0;  // all have left: a new training may group otherwise
  if (!sender.trains) {
    sender.trains = true;
    ++participants_;
  }
  if (group_size_ == 0) {
    group_size_ = message.count;
    group_size_of_ = rank;
  }
  if (message.count != group_size_) {
    return answer_error(
        rank, Lane::kGroup, ErrorCode::kMismatch,
        fmt::format("group size {} here, {} at rank {}. All ranks must pass the same.",
                    message.count, group_size_, group_size_of_));
  }
  matchmaker_.ready(rank, now_);
  form_groups();
}

void ControllerCore::ended(int rank, const Message& message) {
  if (!groups_.awaits(rank, message.tag)) {
    return answer_error(rank, Lane::kGroup, ErrorCode::kAborted,
                        fmt::format("this rank is not in group {} any more.",
                                    message.tag.id & ~GroupTag::kControllerBit));
  }
  const bool done = message.type == MessageType::kDone;
  const auto verdict =
      groups_.report(rank, done ? GroupTable::Report::kDone : GroupTable::Report::kFailed);
  if (verdict) announce(*verdict);
}

void ControllerCore::withdraw(int rank) {
  matchmaker_.remove(rank);
  if (const auto verdict = groups_.remove(rank)) announce(*verdict);
}

void ControllerCore::stop_training(int rank) {
  if (std::exchange(member(rank).trains, false)) --participants_;
  withdraw(rank);
  form_groups();  // fewer participants may mean smaller groups
}

void ControllerCore::form_groups() {
  while (true) {
    const std::vector<int> members = matchmaker_.next(group_size_, participants_, now_);
    if (members.empty()) return;
    if (members.size() == 1) {
      answer(members.front(), Lane::kGroup, {.type = MessageType::kSolo});
      continue;
    }
    const GroupTag tag = groups_.form(members);
    for (const int rank : members) {
      answer(rank, Lane::kGroup, {.type = MessageType::kGroup, .tag = tag, .ranks = members});
    }
  }
}

void ControllerCore::announce(const Verdict& verdict) {
  for (const int rank : verdict.members) {
    Message message{.type = MessageType::kCommit, .tag = verdict.tag};
    if (verdict.kind == Verdict::kSolo) message.type = MessageType::kSolo;
    if (verdict.kind == Verdict::kRetry) {
      message.type = MessageType::kGroup;
      message.ranks = verdict.members;
    }
    answer(rank, Lane::kGroup, std::move(message));
  }
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

std::vector<ControllerCore::Output> ControllerCore::take_output() {
  return std::exchange(output_, {});
}

}  // namespace motley
