// What becomes of calls whose members are gone: dead, or taken out of the group.
#include <utility>

#include "comm/executor/engine.h"

namespace motley {

void Engine::report_lost(int rank, const std::string& why) noexcept {
  {
    const std::lock_guard lock(mutex_);
    news_.emplace_back(rank, why);
    has_news_ = true;
  }
  transport_->report_lost(rank, why);
  transport_->wake();
}

void Engine::report_dropped(const GroupTag& tag, int rank) noexcept {
  {
    const std::lock_guard lock(mutex_);
    dropped_news_.push_back({tag, rank});
    has_news_ = true;
  }
  transport_->wake();
}

void Engine::take_news() {
  if (!has_news_) return;
  const std::lock_guard lock(mutex_);
  has_news_ = false;
  for (auto& [rank, why] : news_) lost_.emplace(rank, Loss{std::move(why), clock_.now()});
  news_.clear();
  for (const Dropped& each : std::exchange(dropped_news_, {})) {
    dropped_.insert_or_assign(each.tag.id, each);
  }
}

// A call with a member whose loss was known by then fails, even where this rank does not talk to
// that member itself; so does one that the team cannot go on with before a lost member does.
void Engine::fail_if_lost(Request::State& state, TimePoint known_until) {
  for (const auto& [rank, loss] : lost_) {
    const bool needed = state.team() != nullptr && state.team()->awaits(rank);
    if (loss.known > known_until && !needed) continue;
    if (!state.work().call().group->contains(rank)) continue;
    state.work().fail_lost(rank, loss.why);
  }
  const Group& group = *state.work().call().group;
  const auto dropped = dropped_.find(group.tag().id);
  if (dropped == dropped_.end() || dropped->second.tag < group.tag()) return;
  state.work().fail_lost(dropped->second.rank, "the controller took it out of the group");
}

}  // namespace motley
