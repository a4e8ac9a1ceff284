// What becomes of calls by what this rank is told of others: that members are gone, dead or taken
// out of the group, or what they found.
#include <algorithm>
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
  for (auto& [rank, why] : news_) {
    const auto is_it = [lost = rank](const Loss& loss) { return loss.rank == lost; };
    if (std::any_of(lost_.begin(), lost_.end(), is_it)) continue;
    lost_.push_back({rank, std::move(why), clock_.now()});
  }
  news_.clear();
  for (const Dropped& each : std::exchange(dropped_news_, {})) {
    dropped_.insert_or_assign(each.tag.id, each);
  }
}

// A call with a member whose loss was known by then fails, even where this rank does not talk to
// that member itself; so does one that the team cannot go on with before a lost member does.
// Whoever died first is to blame: others may have left because of that.
void Engine::fail_if_lost(Request::State& state, TimePoint known_until) {
  RunningCall& work = state.work();
  const Group& group = *work.call().group;
  const auto is_member = [&group](const Loss& loss) { return group.contains(loss.rank); };
  const auto first = std::find_if(lost_.begin(), lost_.end(), is_member);
  if (first != lost_.end()) {
    const bool fails = std::any_of(first, lost_.end(), [&](const Loss& loss) {
      const bool needed = state.team() != nullptr && state.team()->awaits(loss.rank);
      return is_member(loss) && (loss.known <= known_until || needed);
    });
    if (fails || work.lost_a_rank()) work.fail_lost(first->rank, first->why);
  }
  const auto dropped = dropped_.find(group.tag().id);
  if (dropped == dropped_.end() || dropped->second.tag < group.tag() || work.error()) return;
  work.fail_lost(dropped->second.rank, "the controller took it out of the group");
}

void Engine::take_notices() {
  for (Notice& notice : watch_.notices().take()) {
    if (!hears(notice)) watch_.notices().keep(std::move(notice));
  }
}

// What others found concerns the call that it names; if that is complete here, those after it. Of
// a message it is enough that one call fails, the first that is found.
bool Engine::hears(const Notice& notice) {
  bool heard = false;
  RunningCall* other = nullptr;  // of another group
  for (Request::State* state : calls_) {
    RunningCall& work = state->work();
    const CallId id = work.id();
    if (!concerns(notice, id, *work.call().group, work.complete())) continue;
    if (id.group != notice.call.group) {
      if (other == nullptr && !work.error()) other = &work;
      continue;
    }
    work.fail_told(notice);
    heard = true;
    if (id.number == notice.call.number) break;  // calls stand in the order of their numbers
  }
  if (heard || other == nullptr) return heard;
  other->fail_told(notice);
  return true;
}

}  // namespace motley
