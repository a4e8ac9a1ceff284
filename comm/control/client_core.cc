#include "comm/control/client_core.h"

#include <algorithm>
#include <utility>

namespace motley {
namespace {

// A request without an answer is repeated after so many heartbeats; a lost message costs as much.
constexpr int kRepeatAfter = 2;
// So many heartbeats after a process was seen to end, the controller's word is waited for no
// longer.
constexpr int kExitGrace = 3;
constexpr int kPatientLeases = 2;
// The first hello is often said before there is a connection; until one is heard, it is said again
// after this long, then after twice as long, and so on.
constexpr Duration kFirstHello = std::chrono::milliseconds(5);
// Where there are several controllers, one that is not heard is tried for so many heartbeats.
constexpr int kTryFor = 3;

}  // namespace

ClientCore::ClientCore(const ClientConfig& config, TimePoint now)
    : config_(config),
      next_heartbeat_(now),
      hello_wait_(kFirstHello),
      heard_(now),
      moved_(now),
      is_lost_(static_cast<std::size_t>(config.size)) {}

void ClientCore::send(Message message) {
  message.epoch = epoch_;
  output_.push_back(std::move(message));
}

void ClientCore::request(Message message, TimePoint now) {
  if (message.type == MessageType::kReady) left_ = false;
  Pending& pending = lane(*lane_of(message.type));
  message.seq = ++pending.seq;
  pending.reply.reset();
  pending.request = std::move(message);
  pending.sent = now;
  if (admitted() && !failure_) send(*pending.request);
}

void ClientCore::tell(Message message) {
  if (admitted() && !failure_) send(std::move(message));
}

const Message* ClientCore::reply(Lane which) const {
  const auto& reply = lanes_[static_cast<std::size_t>(which)].reply;
  return reply ? &*reply : nullptr;
}

void ClientCore::give_up(Lane which) { lane(which).request.reset(); }

void ClientCore::on_message(const Message& message, TimePoint now) {
  if (message.type == MessageType::kUnknown) return say_hello();
  const bool restarted = message.type == MessageType::kWelcome && message.epoch > epoch_;
  const bool fenced = message.type == MessageType::kFenced && message.epoch > epoch_;
  if (admitted() && message.epoch != epoch_ && !restarted && !fenced) return;
  heard_ = now;
  broken_ = false;
  switch (message.type) {
    case MessageType::kWelcome:
      if (!restarted) return;
      begin_epoch(message.epoch, now);
      if (left_) say_hello();  // it may have heard so after it said hello
      lease_ = Duration(message.number);
      config_.heartbeat = std::min(config_.heartbeat, lease_ / 4);
      next_heartbeat_ = now;
      return on_time(now);
    case MessageType::kRefused:
      if (!admitted()) failure_ = {static_cast<ErrorCode>(message.number), message.value};
      return;
    case MessageType::kFenced:
      if (!failure_) failure_ = {ErrorCode::kAborted, message.value};
      return;
    case MessageType::kLost:
      if (message.number == losses_known_) ++losses_known_;
      return lost(message.rank, message.value);
    case MessageType::kDeparted:
      exited_.erase(message.rank);
      return;
    case MessageType::kHeartbeat:
      return sign_answered(now);
    case MessageType::kDropped:
      dropped_.push_back(message);
      return;
    case MessageType::kTell:
    case MessageType::kCalls:
      told_.push_back(message);
      return;
    case MessageType::kOk:
    case MessageType::kValue:
    case MessageType::kGroup:
    case MessageType::kCommit:
    case MessageType::kSolo:
    case MessageType::kError:
      return answered(message, now);
    default:
      return;
  }
}

// The answer may be to an earlier sign: then that took longer than a heartbeat, and this is short.
void ClientCore::sign_answered(TimePoint now) {
  if (sign_sent_ == TimePoint::max()) return;
  const Duration took = now - std::exchange(sign_sent_, TimePoint::max());
  round_trip_ = round_trip_ == Duration{} ? took : (3 * round_trip_ + took) / 4;
}

void ClientCore::answered(const Message& message, TimePoint now) {
  // The answer names its lane: several may wait under the same seq.
  if (message.count < 0 || message.count >= static_cast<int>(kLanes)) return;
  Pending& pending = lanes_[message.count];
  if (!pending.request || pending.seq != message.seq) return;  // given up, or answered before
  if (pending.request->type == MessageType::kLeave) left_ = message.type == MessageType::kOk;
  recollection_.learn(*pending.request, message);
  pending.request.reset();
  pending.reply = message;
  pending.answered = now;
}

// Whoever serves is one of several: a broken connection, or a lease of silence, and the next is
// tried, in turn, until one is heard.
void ClientCore::look_elsewhere(TimePoint now) {
  const bool away = broken_ || !admitted() || silence(now) > lease_;
  if (config_.controllers < 2 || failure_ || !away) return;
  if (now - moved_ < kTryFor * config_.heartbeat) return;
  moved_ = now;
  move_ = true;
  hello_wait_ = kFirstHello;
  next_heartbeat_ = std::min(next_heartbeat_, now + kFirstHello);  // once there is a connection
}

void ClientCore::on_time(TimePoint now) {
  look_elsewhere(now);
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + config_.heartbeat;
  if (failure_) return;
  if (!admitted()) {
    next_heartbeat_ = now + std::min(hello_wait_, config_.heartbeat);
    hello_wait_ = std::min(2 * hello_wait_, config_.heartbeat);
    return say_hello();
  }
  send({.type = MessageType::kHeartbeat, .number = losses_known_, .value = progress_});
  sign_sent_ = now;
  for (Pending& pending : lanes_) {
    if (!pending.request || now - pending.sent < kRepeatAfter * config_.heartbeat) continue;
    pending.sent = now;
    send(*pending.request);
  }
  report_exits(now);
}

void ClientCore::say_hello() {
  std::vector<std::int32_t> dead;
  for (std::size_t rank = 0; rank < is_lost_.size(); ++rank) {
    if (is_lost_[rank]) dead.push_back(static_cast<std::int32_t>(rank));
  }
  send({.type = MessageType::kHello,
        .rank = config_.rank,
        .count = config_.size,
        .number = epoch_,
        .ranks = std::move(dead),
        .key = left_ ? "left" : "",
        .value = config_.token});
}

// What was asked of the controller before it was restarted has no answer yet, or needs none.
void ClientCore::begin_epoch(std::uint32_t epoch, TimePoint now) {
  const bool restarted = admitted();
  if (restarted) losses_known_ = 0;
  epoch_ = epoch;
  if (restarted) request({.type = MessageType::kRecall, .value = encode(recollection_)}, now);
  for (Pending& pending : lanes_) {
    if (!pending.request) continue;
    pending.sent = now;
    send(*pending.request);
  }
}

void ClientCore::process_exited(int rank, TimePoint now) {
  if (rank < 0 || rank >= config_.size || is_lost_[static_cast<std::size_t>(rank)]) return;
  exited_.try_emplace(rank, now);
  if (admitted()) send({.type = MessageType::kExited, .rank = rank});
}

void ClientCore::resign(const std::string& why) {
  if (admitted()) send({.type = MessageType::kExited, .rank = config_.rank, .value = why});
}

void ClientCore::report_exits(TimePoint now) {
  std::vector<int> overdue;
  for (const auto& [rank, since] : exited_) {
    const bool patient = patient_ && rank != config_.controller_rank;
    if (now - since < (patient ? kPatientLeases * lease_ : kExitGrace * config_.heartbeat)) {
      send({.type = MessageType::kExited, .rank = rank});
    } else {
      overdue.push_back(rank);
    }
  }
  for (const int rank : overdue) lost(rank, "its process has ended");
}

void ClientCore::lost(int rank, const std::string& why) {
  if (rank < 0 || rank >= config_.size) return;
  exited_.erase(rank);
  if (is_lost_[static_cast<std::size_t>(rank)]) return;
  is_lost_[static_cast<std::size_t>(rank)] = true;
  losses_.push_back({rank, why});
}

std::vector<Message> ClientCore::take_output() { return std::exchange(output_, {}); }

std::vector<ClientCore::Loss> ClientCore::take_losses() {
  std::vector<Loss> taken(losses_.begin(), losses_.end());
  losses_.clear();
  return taken;
}

}  // namespace motley
