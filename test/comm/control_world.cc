#include "test/comm/control_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley::test {

World::World(int size, int group_size, int steps, Duration lease, bool immediate)
    : config_{.size = size, .token = "t", .lease = lease},
      group_size_(group_size),
      immediate_(immediate),
      core_(config_, now_) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.push_back({.client = ClientCore({.rank = rank, .size = size, .token = "t"}, now_),
                      .steps_left = steps});
    at(rank).client.on_time(now_);  // hello
  }
  // All are admitted before the test begins; joining is tested elsewhere.
  while (true) {
    const std::vector<Packet> packets = take_packets();
    if (packets.empty()) break;
    for (const Packet& packet : packets) deliver(packet);
  }
  for (int rank = 0; rank < size; ++rank) go_on(rank);
}

// FNV-1a.
void World::note(std::uint64_t& history, const void* data, std::size_t size) {
  if (history == 0) history = 14695981039346656037u;
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (std::size_t i = 0; i < size; ++i) history = (history ^ bytes[i]) * 1099511628211u;
}

void World::note(std::uint64_t& history, const Message& message) {
  const std::vector<std::byte> bytes = encode(message);
  note(history, bytes.data(), bytes.size());
}

std::uint64_t World::hash() const {
  std::uint64_t hash = controller_history_;
  for (const Rank& rank : ranks_) hash = (hash ^ rank.history) * 0x9e3779b97f4a7c15u + (hash >> 29);
  return hash;
}

void World::deliver(const Packet& packet) {
  if (packet.to_controller) {
    note(controller_history_, &packet.rank, sizeof packet.rank);
    note(controller_history_, packet.message);
    tell({Told::kMessage, now_, packet.rank, packet.message});
  } else if (at(packet.rank).phase != Rank::kDead) {
    note(at(packet.rank).history, packet.message);
    at(packet.rank).client.on_message(packet.message, now_);
    take_dropped(packet.rank);
    react(packet.rank);
  }
}

// Its own calls of that attempt fail from now on; those of others are told, too.
void World::take_dropped(int rank) {
  for (const Message& message : at(rank).client.take_dropped()) {
    const auto attempt = attempts_.find(message.tag);
    if (attempt != attempts_.end()) attempt->second.told_dropped.insert(rank);
  }
}

void World::react(int rank) {
  Rank& self = at(rank);
  if (self.settled()) return;
  if (self.client.failure()) {
    self.phase = Rank::kDead;  // declared dead: it touches its group no more
    return;
  }
  const Message* reply = self.client.reply(Lane::kGroup);
  const bool waits = self.phase == Rank::kReady || self.phase == Rank::kReported ||
                     self.phase == Rank::kLeaving || self.phase == Rank::kWithdrawing;
  if (reply == nullptr || !waits) return;
  switch (reply->type) {
    case MessageType::kGroup:
      return begin(rank, *reply);
    case MessageType::kSolo:
      return took(rank, Outcome::kSolo, {});
    case MessageType::kOk:
      if (self.phase == Rank::kLeaving) {
        self.phase = Rank::kFinished;
      } else {
        go_on(rank);
      }
      return;
    default:
      self.outcomes.push_back({.step = -1, .kind = Outcome::kError, .tag = {}});
      self.error = fmt::format("{} in phase {}: {}", static_cast<int>(reply->type),
                               static_cast<int>(self.phase), reply->value);
      self.phase = Rank::kFinished;
  }
}

void World::begin(int rank, const Message& reply) {
  Rank& self = at(rank);
  const auto told = decode_group(reply.value);
  const int donor = told ? told->donor : -2;
  self.tag = reply.tag;
  self.phase = donor == rank ? Rank::kHandingOn : Rank::kAveraging;
  if (donor != rank) self.open = {};
  self.since = now_;
  Attempt& attempt = attempts_[reply.tag];
  attempt.members.assign(reply.ranks.begin(), reply.ranks.end());
  attempt.donor = donor;
  if (told) attempt.keepers = told->keepers;
  attempt.began.insert(rank);
}

// `rank` has what it takes from this step.
void World::took(int rank, Outcome::Kind kind, const GroupTag& result) {
  Rank& self = at(rank);
  self.outcomes.push_back({.step = self.step, .kind = kind, .tag = result});
  go_on(rank);
}

void World::go_on(int rank) {
  at(rank).phase = Rank::kStepping;
  at(rank).since = now_;
  if (immediate_) end_step(rank);
}

bool World::may_announce(int rank) const {
  const Rank& self = at(rank);
  return self.phase == Rank::kStepping && self.steps_left > 0 && !self.withdrew &&
         self.announced == 0;
}

void World::announce(int rank, Duration eta, Duration round_trip, Duration ahead) {
  Rank& self = at(rank);
  note(self.history, "announce", 8);
  self.announced = self.step + 1;
  const Message* reply = self.client.reply(Lane::kGroup);
  if (reply != nullptr && reply->type == MessageType::kCommit) self.open = {};
  const ReadyNote told{.grouping = {.group_size = group_size_},
                       .version = self.announced,
                       .eta = eta,
                       .round_trip = round_trip,
                       .ahead = ahead};
  Message message{.type = MessageType::kReady, .number = self.announced, .value = encode(told)};
  name_open(rank, message);
  self.client.request(std::move(message), now_);
}

// What was announced has its answer already.
bool World::take_announced(int rank) {
  Rank& self = at(rank);
  const bool as_announced = std::exchange(self.announced, 0) == self.step && self.gives;
  const Message* found = self.client.reply(Lane::kGroup);
  if (!as_announced || found == nullptr || self.client.failure()) return false;
  const Message reply = *found;
  if (reply.type == MessageType::kSolo) {
    self.open = {};
    took(rank, Outcome::kSolo, {});
    return true;
  }
  if (reply.type != MessageType::kGroup) return false;
  begin(rank, reply);
  if (self.phase == Rank::kHandingOn) return true;
  self.begun = reply.tag;
  const ReadyNote told{.grouping = {.group_size = group_size_}, .version = self.step};
  self.client.request({.type = MessageType::kBegin,
                       .number = self.step,
                       .tag = reply.tag,
                       .ranks = reply.ranks,
                       .value = encode(told)},
                      now_);
  return true;
}

bool World::waits_for_word(int rank) const {
  const Rank& self = at(rank);
  return self.begun && self.client.reply(Lane::kGroup) == nullptr &&
         self.client.silence(now_) <= 3 * config_.lease;
}

// True if it is not in the group any more that it has averaged with, and does what it was told.
bool World::take_replacement(int rank) {
  Rank& self = at(rank);
  const auto begun = std::exchange(self.begun, std::nullopt);
  const Message* found = self.client.reply(Lane::kGroup);
  if (!begun || found == nullptr) return false;
  const Message reply = *found;
  if (reply.type == MessageType::kSolo) {
    took(rank, Outcome::kSolo, {});
    return true;
  }
  if (reply.type != MessageType::kGroup || reply.tag.id == begun->id) return false;
  begin(rank, reply);
  return true;
}

void World::end_step(int rank) {
  Rank& self = at(rank);
  if (self.steps_left > 0 && !self.withdrew) {
    --self.steps_left;
    ++self.step;
    if (self.announced != 0 && take_announced(rank)) return;
    return ask(rank);
  }
  self.steps_left = -1;
  ask(rank);
}

void World::ask(int rank) {
  Rank& self = at(rank);
  // Whether the last group is committed is known by the answer to kDone, if that was the last
  // request.
  const Message* reply = self.client.reply(Lane::kGroup);
  if (reply != nullptr && reply->type == MessageType::kCommit) self.open = {};
  Message message{.type = MessageType::kLeave};
  if (self.steps_left >= 0) {
    const ReadyNote note{
        .grouping = {.group_size = group_size_}, .version = self.step, .gives = self.gives};
    message = {.type = MessageType::kReady, .number = self.step, .value = encode(note)};
  }
  name_open(rank, message);
  request(rank, self.steps_left >= 0 ? Rank::kReady : Rank::kLeaving, std::move(message));
}

void World::name_open(int rank, Message& message) const {
  message.tag = at(rank).open;
  if (message.tag.id == 0) return;
  const std::vector<int>& members = attempts_.at(message.tag).members;
  message.ranks.assign(members.begin(), members.end());
}

void World::request(int rank, Rank::Phase phase, Message message) {
  at(rank).phase = phase;
  at(rank).since = now_;
  at(rank).client.request(std::move(message), now_);
}

bool World::may_complete(int rank) const { return may_fail(rank) && all_began(rank); }

bool World::all_began(int rank) const {
  if (!runs(rank)) return false;
  const Attempt& attempt = attempts_.at(at(rank).tag);
  return attempt.began.size() == attempt.members.size();
}

// Who completes takes the average, says so, and goes on at once.
void World::complete(int rank) {
  note(at(rank).history, "complete", 8);
  if (take_replacement(rank)) return;
  Rank& self = at(rank);
  Attempt& attempt = attempts_.at(self.tag);
  attempt.completed.insert(rank);
  self.open = self.tag;
  Message done{.type = MessageType::kDone};
  name_open(rank, done);
  const bool hands_on = self.phase == Rank::kHandingOn;
  self.client.request(std::move(done), now_);
  if (hands_on) return ask(rank);
  self.result = attempt.donor < 0 ? self.tag : at(attempt.donor).result;
  took(rank, Outcome::kAveraged, self.result);
}

bool World::is_told(int rank) const {
  if (!may_fail(rank)) return false;
  const Attempt& attempt = attempts_.at(at(rank).tag);
  return attempt.failed || attempt.told_dropped.contains(rank);
}

bool World::is_broken(int rank) const {
  if (!may_fail(rank)) return false;
  const Attempt& attempt = attempts_.at(at(rank).tag);
  return is_told(rank) || std::ranges::any_of(attempt.members, [&](int member) {
           const Rank& other = at(member);
           if (other.phase == Rank::kDead || other.withdrew) return true;
           // It is through with this attempt and never was in it: the controller took it out.
           return !attempt.began.contains(member) && other.phase == Rank::kFinished;
         });
}

void World::fail(int rank) {
  note(at(rank).history, "fail", 4);
  attempts_.at(at(rank).tag).failed = true;
  if (take_replacement(rank)) return;
  if (at(rank).phase == Rank::kHandingOn) return complete(rank);  // it still has what it had
  const ReadyNote told{
      .grouping = {.group_size = group_size_}, .version = at(rank).step, .gives = at(rank).gives};
  const Attempt& attempt = attempts_.at(at(rank).tag);
  Message message{.type = MessageType::kFail,
                  .rank = -1,
                  .number = static_cast<std::int64_t>(ErrorCode::kPeerLost),
                  .tag = at(rank).tag,
                  .ranks = {attempt.members.begin(), attempt.members.end()},
                  .value = encode(told)};
  message.ranks.insert(message.ranks.end(), attempt.keepers.begin(), attempt.keepers.end());
  request(rank, Rank::kReported, std::move(message));
}

bool World::may_go_alone(int rank) const {
  const Rank& self = at(rank);
  return self.phase == Rank::kReady && self.client.silence(now_) > config_.lease;
}

void World::go_alone(int rank) {
  note(at(rank).history, "alone", 5);
  Message message{.type = MessageType::kWithdraw};
  name_open(rank, message);
  at(rank).client.request(std::move(message), now_);
  took(rank, Outcome::kAway, {});
}

void World::repeat_requests(int rank) {
  note(at(rank).history, "repeat", 6);
  at(rank).client.on_time(now_ += seconds(0.5));
}

void World::restart_controller(Successor successor) {
  note(controller_history_, "restart", 7);
  ++config_.epoch;
  for (int rank = 0; rank < size(); ++rank) {
    at(rank).was_lost = at(rank).was_lost || core_.is_lost(rank);
  }
  succeeded_ = successor == Successor::kStandby ? core_.epoch() : 0;
  core_ = ControllerCore(config_, now_);
  core_.succeed(succeeded_, now_);
  started_ = now_;
  told_.clear();
  said_.clear();
}

bool World::may_withdraw(int rank) const {
  const Rank::Phase phase = at(rank).phase;
  return phase == Rank::kReady || phase == Rank::kAveraging || phase == Rank::kReported ||
         (phase == Rank::kStepping && at(rank).announced != 0);
}

void World::withdraw(int rank) {
  note(at(rank).history, "withdraw", 8);
  at(rank).begun.reset();
  at(rank).withdrew = true;
  Message message{.type = MessageType::kWithdraw};
  name_open(rank, message);
  request(rank, Rank::kWithdrawing, std::move(message));
}

void World::tell(Told told) {
  tell(core_, told);
  if (keeps_log_) told_.push_back(std::move(told));
}

void World::tell(ControllerCore& core, const Told& told) {
  switch (told.kind) {
    case Told::kMessage:
      return core.on_message(std::to_string(told.rank), told.message, told.now);
    case Told::kTime:
      return core.on_time(told.now);
    case Told::kDeath:
      return core.report_lost(told.rank, "the test says so");
  }
}

void World::die(int rank) {
  note(at(rank).history, "die", 3);
  at(rank).phase = Rank::kDead;
}

void World::learn_death(int rank) {
  note(controller_history_, "dead", 4);
  note(controller_history_, &rank, sizeof rank);
  tell({Told::kDeath, now_, rank});
}

void World::pass_time(TimePoint now) {
  now_ = now;
  tell({Told::kTime, now});
  for (Rank& rank : ranks_) {
    // A rank that has left and ended sends nothing more; it is not dead either.
    if (rank.phase != Rank::kDead) rank.client.on_time(now);
  }
}

void World::collect() {
  for (ControllerCore::Output& output : core_.take_output()) {
    if (keeps_log_) said_.push_back(output);
    packets_.push_back({std::stoi(output.to), false, std::move(output.message)});
  }
  for (int rank = 0; rank < size(); ++rank) {
    for (Message& message : at(rank).client.take_output()) {
      packets_.push_back({rank, true, std::move(message)});
    }
  }
}

std::vector<Packet> World::take_packets() {
  collect();
  return std::exchange(packets_, {});
}

}  // namespace motley::test
