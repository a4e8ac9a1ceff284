#include "comm/algorithm/chooser.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace motley {

Chooser::Chooser(Topology topology)
    : world_{std::move(topology), {}}, decided_(std::make_unique<Decisions>()) {
  std::map<std::tuple<int, int, double>, int> kinds;
  for (const Host& host : world().hosts()) {
    const auto next = static_cast<int>(kinds.size());
    const auto it =
        kinds.try_emplace({host.cores, host.ports, host.port_bytes_per_second}, next).first;
    kind_.push_back(it->second);
  }
  auto next = static_cast<int>(kinds.size());
  for (const HostLink& own : world().links()) {  // what has a link of its own is like no other
    kind_[static_cast<std::size_t>(own.a)] = next++;
    kind_[static_cast<std::size_t>(own.b)] = next++;
  }
}

const Topology& Chooser::among(const Group& group) { return layout_of(group).topology; }

int Chooser::choose(const Choice& call, const Group& group) {
  Layout& layout = layout_of(group);
  Choice largest = call;
  largest.bytes = std::bit_ceil(call.bytes);
  const std::tuple key(call.kind, call.memory, call.root, largest.bytes);
  const auto found = layout.chosen.find(key);
  if (found != layout.chosen.end()) return found->second;
  if (layout.chosen.size() == kChoices) layout.chosen.clear();
  return layout.chosen[key] = motley::choose(largest, layout.topology);
}

bool Chooser::decide(const Choice& call, int members, const PriceOfWhole& price) const {
  const std::vector<Host>& hosts = world().hosts();
  const auto most = std::max_element(hosts.begin(), hosts.end(), [](const Host& a, const Host& b) {
    return a.ranks.size() < b.ranks.size();
  });
  if (most->ranks.size() < static_cast<std::size_t>(members)) return true;
  const Topology among = world().subset({most->ranks.begin(), most->ranks.begin() + members});
  Choice largest = call;
  largest.root = 0;
  largest.bytes = priced_bytes(call.kind, std::bit_ceil(call.bytes), members);
  largest.whole = price(largest, among);
  return motley::choose(largest, among) == kWhole;
}

Chooser::Layout& Chooser::layout_of(const Group& group) {
  const std::vector<int>& members = group.ranks();
  if (group.size() == world().ranks() && std::is_sorted(members.begin(), members.end()))
    return world_;
  std::vector<Place> places;
  places.reserve(members.size());
  std::map<int, int> position;  // of a host among those of the group
  for (const int rank : members) {
    const int host = world().host_of(rank);
    const int next = static_cast<int>(position.size());
    places.push_back({position.try_emplace(host, next).first->second,
                      kind_[static_cast<std::size_t>(host)], world().socket_of(rank)});
  }
  const auto found = layouts_.find(places);
  if (found != layouts_.end()) return found->second;
  if (layouts_.size() == kLayouts) layouts_.clear();
  return layouts_.emplace(std::move(places), Layout{world().subset(members), {}}).first->second;
}

}  // namespace motley
