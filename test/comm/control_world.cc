#include "test/comm/control_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace motley::test {

World::World(int size, int group_size, int steps, Duration lease)
    : group_size_(group_size), core_({.size = size, .token = "t", .lease = lease}, now_) {
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
    core_.on_message(std::to_string(packet.rank), packet.message, now_);
  } else if (at(packet.rank).phase != Rank::kDead) {
    note(at(packet.rank).history, packet.message);
    at(packet.rank).client.on_message(packet.message, now_);
    react(packet.rank);
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
  if (reply == nullptr || self.phase == Rank::kAveraging) return;
  switch (reply->type) {
    case MessageType::kGroup: {
      self.tag = reply->tag;
      self.phase = Rank::kAveraging;
      self.since = now_;
      Attempt& attempt = attempts_[reply->tag];
      attempt.members.assign(reply->ranks.begin(), reply->ranks.end());
      attempt.began.insert(rank);
      return;
    }
    case MessageType::kCommit:
      self.outcomes.push_back({.step = self.step, .solo = false, .tag = reply->tag});
      return go_on(rank);
    case MessageType::kSolo:
      self.outcomes.push_back({.step = self.step, .solo = true, .tag = {}});
      return go_on(rank);
    case MessageType::kOk:
      if (self.phase == Rank::kLeaving) {
        self.phase = Rank::kFinished;
      } else {
        go_on(rank);
      }
      return;
    default:
      self.outcomes.push_back({.step = -1, .solo = false, .tag = {}});  // violation() objects
      self.phase = Rank::kFinished;
  }
}

void World::go_on(int rank) {
  Rank& self = at(rank);
  if (self.steps_left == 0 || self.withdrew) {
    return request(rank, Rank::kLeaving, {.type = MessageType::kLeave});
  }
  --self.steps_left;
  ++self.step;
  request(rank, Rank::kReady,
          {.type = MessageType::kReady, .count = group_size_, .number = self.step});
}

void World::request(int rank, Rank::Phase phase, Message message) {
  at(rank).phase = phase;
  at(rank).since = now_;
  at(rank).client.request(std::move(message), now_);
}

bool World::may_complete(int rank) const {
  if (at(rank).phase != Rank::kAveraging) return false;
  const Attempt& attempt = attempts_.at(at(rank).tag);
  return attempt.began.size() == attempt.members.size();
}

void World::complete(int rank) {
  note(at(rank).history, "complete", 8);
  attempts_.at(at(rank).tag).completed.insert(rank);
  request(rank, Rank::kReported, {.type = MessageType::kDone, .tag = at(rank).tag});
}

bool World::is_broken(int rank) const {
  if (!may_fail(rank)) return false;
  const Attempt& attempt = attempts_.at(at(rank).tag);
  return attempt.failed || std::ranges::any_of(attempt.members, [this](int member) {
           return at(member).phase == Rank::kDead || at(member).withdrew;
         });
}

void World::fail(int rank) {
  note(at(rank).history, "fail", 4);
  attempts_.at(at(rank).tag).failed = true;
  request(rank, Rank::kReported, {.type = MessageType::kFail, .rank = -1, .tag = at(rank).tag});
}

bool World::may_withdraw(int rank) const {
  const Rank::Phase phase = at(rank).phase;
  return phase == Rank::kReady || phase == Rank::kAveraging || phase == Rank::kReported;
}

void World::withdraw(int rank) {
  note(at(rank).history, "withdraw", 8);
  at(rank).withdrew = true;
  request(rank, Rank::kWithdrawing, {.type = MessageType::kWithdraw});
}

void World::die(int rank) {
  note(at(rank).history, "die", 3);
  at(rank).phase = Rank::kDead;
}

void World::learn_death(int rank) {
  note(controller_history_, "dead", 4);
  note(controller_history_, &rank, sizeof rank);
  core_.report_lost(rank, "the test says so");
}

void World::pass_time(TimePoint now) {
  now_ = now;
  core_.on_time(now);
  for (Rank& rank : ranks_) {
    // A rank that has left and ended sends nothing more; it is not dead either.
    if (rank.phase != Rank::kDead) rank.client.on_time(now);
  }
}

void World::collect() {
  for (ControllerCore::Output& output : core_.take_output()) {
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

bool World::settled() const { return std::ranges::all_of(ranks_, &Rank::settled); }

std::string World::violation() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& self = at(rank);
    for (std::size_t i = 0; i < self.outcomes.size(); ++i) {
      const Outcome& outcome = self.outcomes[i];
      if (outcome.step != static_cast<int>(i) + 1) {
        return fmt::format("rank {}: step {} has not exactly one outcome", rank, i + 1);
      }
      if (outcome.solo) continue;
      const auto attempt = attempts_.find(outcome.tag);
      if (attempt == attempts_.end() || !attempt->second.completed.contains(rank)) {
        return fmt::format("rank {} took an average that it had not completed", rank);
      }
    }
  }
  if (!settled()) return {};
  // Whoever lives to the end and did not withdraw has committed what any member has committed.
  for (const auto& [tag, attempt] : attempts_) {
    const auto committed = [&, wanted = tag](int rank) {
      return std::ranges::any_of(at(rank).outcomes, [&](const Outcome& outcome) {
        return !outcome.solo && outcome.tag == wanted;
      });
    };
    if (std::ranges::none_of(attempt.members, committed)) continue;
    for (const int rank : attempt.members) {
      if (committed(rank) || at(rank).phase == Rank::kDead || at(rank).withdrew) continue;
      return fmt::format("group {}.{} was committed by some, but not by rank {}",
                         tag.id & ~GroupTag::kControllerBit, tag.attempt, rank);
    }
  }
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& self = at(rank);
    if (self.phase == Rank::kDead || self.withdrew) continue;
    if (static_cast<int>(self.outcomes.size()) != self.step) {
      return fmt::format("rank {}: {} outcomes for {} steps", rank, self.outcomes.size(),
                         self.step);
    }
  }
  return {};
}

std::string World::leftovers() const {
  if (core_.groups().size() != 0 || core_.matchmaker().waiting() != 0) {
    return fmt::format("{} groups and {} waiting ranks are left at the controller",
                       core_.groups().size(), core_.matchmaker().waiting());
  }
  return {};
}

std::string World::to_text() const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& self = at(rank);
    text += fmt::format("rank {}: phase {}, step {}, {} outcomes\n", rank,
                        static_cast<int>(self.phase), self.step, self.outcomes.size());
  }
  return text;
}

}  // namespace motley::test
