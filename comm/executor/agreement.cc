#include "comm/executor/agreement.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace motley {

Agreement::Agreement(Transport& transport, const Call& call, const Fingerprint& fingerprint)
    : transport_(transport),
      call_(call),
      fingerprint_(fingerprint),
      awaited_(static_cast<std::size_t>(call.group->size())) {}

void Agreement::start(Sink& sink) {
  started_ = true;
  const Group& group = *call_.group;
  const int p = group.size();
  const int place = group.index_of(transport_.rank());
  const Tag tag{.call = {group.tag(), call_.number}, .piece = 0, .fingerprint = fingerprint_};
  // What two ranks exchange, only they know.
  const bool tells_all = p <= kFew || call_.kind == CallKind::kAllToAllV;
  const int told = tells_all ? p - 1 : 1;
  for (int away = 1; away <= told; ++away) {
    const int from = (place + p - away) % p;
    awaited_[static_cast<std::size_t>(from)] = 1;
    ++silent_;
    transport_.post_recv(group.rank_at(from), tag, sink, static_cast<std::uint32_t>(from));
  }
  for (int away = 1; away <= told; ++away) {
    const int to = (place + away) % p;
    const ConstBytes counts = counts_for(to);
    if (!transport_.post_send(group.rank_at(to), tag, counts, sink, 0)) ++unsent_;
  }
}

// Of the blocks that both must know.
ConstBytes Agreement::counts_for(int member) const noexcept {
  if (call_.kind == CallKind::kAllGatherV) return std::as_bytes(std::span(call_.out_counts));
  if (call_.kind != CallKind::kAllToAllV) return {};
  return std::as_bytes(std::span(call_.in_counts).subspan(static_cast<std::size_t>(member), 1));
}

std::optional<Agreement::Conflict> Agreement::heard(std::uint32_t cookie, const Tag& tag,
                                                    ConstBytes data) {
  --silent_;
  awaited_[cookie] = 0;
  Conflict conflict{.rank = call_.group->rank_at(static_cast<int>(cookie)),
                    .ours = fingerprint_,
                    .theirs = tag.fingerprint};
  if (!may_be_one_call(tag.fingerprint, fingerprint_)) return conflict;
  if (!varies(call_.kind)) return std::nullopt;
  std::span<const std::size_t> mine = call_.out_counts;
  if (call_.kind == CallKind::kAllToAllV) mine = mine.subspan(cookie, 1);
  if (data.size() != mine.size_bytes()) return conflict;
  std::vector<std::size_t> theirs(mine.size());
  std::memcpy(theirs.data(), data.data(), data.size());
  const auto [ours, other] = std::ranges::mismatch(mine, theirs);
  if (ours == mine.end()) return std::nullopt;
  conflict.ours.count = *ours;
  conflict.theirs.count = *other;
  return conflict;
}

std::vector<int> Agreement::awaited() const {
  std::vector<int> ranks;
  for (std::size_t member = 0; member < awaited_.size(); ++member) {
    if (awaited_[member] != 0) ranks.push_back(call_.group->rank_at(static_cast<int>(member)));
  }
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace motley
