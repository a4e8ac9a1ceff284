// What must hold of a job in a box.
#include <fmt/format.h>

#include <algorithm>

#include "test/comm/control_world.h"

namespace motley::test {

bool World::settled() const { return std::ranges::all_of(ranks_, &Rank::settled); }

std::string World::violation() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Rank& self = at(rank);
    for (std::size_t i = 0; i < self.outcomes.size(); ++i) {
      const Outcome& outcome = self.outcomes[i];
      if (outcome.step != static_cast<int>(i) + 1) {
        return fmt::format("rank {}: step {} has not exactly one outcome", rank, i + 1);
      }
      if (outcome.kind != Outcome::kAveraged) continue;
      const auto attempt = attempts_.find(outcome.tag);
      if (attempt == attempts_.end() || attempt->second.completed.empty() ||
          std::ranges::find(attempt->second.members, rank) == attempt->second.members.end()) {
        return fmt::format("rank {} took an average in which it was not", rank);
      }
    }
  }
  if (!settled()) return {};
  // Whoever lives to the end and did not withdraw has what any other such member has. Not promised
  // to a rank that was dead to a controller before that was restarted: the others were told then
  // that their group was committed without it, and do not keep the average. The next controller
  // takes the rank for living unless somebody who had heard of its death says so in its hello; the
  // message may have been lost, and who had it may have ended.
  for (const auto& [tag, attempt] : attempts_) {
    const auto has = [&, wanted = tag](int rank) {
      return std::ranges::any_of(at(rank).outcomes, [&](const Outcome& outcome) {
        return outcome.kind == Outcome::kAveraged && outcome.tag == wanted;
      });
    };
    const auto lives = [&](int rank) {
      return at(rank).phase != Rank::kDead && !at(rank).withdrew && !at(rank).was_lost;
    };
    const auto holder =
        std::ranges::find_if(attempt.members, [&](int rank) { return lives(rank) && has(rank); });
    if (holder == attempt.members.end()) continue;
    for (const int rank : attempt.members) {
      if (has(rank) || !lives(rank)) continue;
      return fmt::format("group {}.{} was completed by rank {}, but rank {} has not its average",
                         tag.id & ~GroupTag::kControllerBit, tag.attempt, *holder, rank);
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

std::string World::replay() const {
  ControllerCore core(config_, started_);
  core.succeed(succeeded_, started_);
  for (const Told& told : told_) tell(core, told);
  const std::vector<ControllerCore::Output> said = core.take_output();
  for (std::size_t i = 0; i < std::max(said.size(), said_.size()); ++i) {
    const bool same = i < said.size() && i < said_.size() && said[i].to == said_[i].to &&
                      said[i].message == said_[i].message;
    if (!same) return fmt::format("message {} of {} differs", i, said_.size());
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
    text += fmt::format("rank {}: phase {}, step {}, {} outcomes {}\n", rank,
                        static_cast<int>(self.phase), self.step, self.outcomes.size(), self.error);
  }
  return text;
}

}  // namespace motley::test
