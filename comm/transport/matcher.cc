#include "comm/transport/matcher.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley {
namespace {

constexpr std::size_t kClosedCalls = 4096;  // how many cancelled calls are remembered
constexpr std::size_t kSpareBuffers = 64;

bool same_lane(const Tag& a, const Tag& b) noexcept {
  return a.piece == b.piece && a.call == b.call;
}

}  // namespace

void Sink::disagreed(int, const Tag&, const Fingerprint&) {}

void Sink::received_on_device(std::uint32_t cookie, const Tag&, DeviceMessage message) {
  failed(cookie, Error(ErrorCode::kMismatch,
                       fmt::format("a message of {} bytes in device memory where none is expected",
                                   message.size)));
}

void Matcher::post(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) {
  Peer& peer = peers_[from];
  peer.receives.push_back({tag, &sink, cookie});
  if (peer.lost || !peer.messages.empty()) mark_ready(from, peer);
}

void Matcher::fail_send(int to, Sink& sink, std::uint32_t cookie) {
  Peer& peer = peers_[to];
  peer.sends.push_back({{}, &sink, cookie});
  mark_ready(to, peer);
}

void Matcher::arrived(int from, const Tag& tag, ConstBytes data) {
  if (stale(tag.call)) return;
  if (tag.piece == Tag::kNotice) {
    if (notices_ != nullptr) notices_->received(static_cast<std::uint32_t>(from), tag, data);
    return;
  }
  Peer& peer = peers_[from];
  if (const auto receive = claim(peer, tag))
    return receive->sink->received(receive->cookie, tag, data);
  if (foreign(from, tag)) return;
  std::vector<std::byte> copy;
  if (!spare_.empty()) {
    copy = std::move(spare_.back());
    spare_.pop_back();
  }
  copy.assign(data.begin(), data.end());
  keep(peer, {tag, std::move(copy), {}});
}

void Matcher::arrived(int from, const Tag& tag, DeviceMessage message) {
  if (stale(tag.call)) return;
  Peer& peer = peers_[from];
  if (const auto receive = claim(peer, tag))
    return receive->sink->received_on_device(receive->cookie, tag, std::move(message));
  if (!foreign(from, tag)) keep(peer, {tag, {}, std::move(message)});
}

// Takes out the receive that a message which has just arrived is for, if there is one.
std::optional<Matcher::Receive> Matcher::claim(Peer& peer, const Tag& tag) {
  const auto same = [&](const auto& other) { return same_lane(other.tag, tag); };
  // A message kept earlier in the same lane goes first.
  if (!peer.messages.empty() && std::any_of(peer.messages.begin(), peer.messages.end(), same))
    return std::nullopt;
  const auto it = std::find_if(peer.receives.begin(), peer.receives.end(), same);
  if (it == peer.receives.end()) return std::nullopt;
  const Receive receive = *it;
  peer.receives.erase(it);
  return receive;
}

void Matcher::keep(Peer& peer, Message message) {
  peer.kept_bytes += message.size();
  peer.messages.push_back(std::move(message));
}

bool Matcher::deliver() {
  bool moved = false;
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    Peer& peer = peers_[rank];  // references into an unordered_map stay valid
    peer.ready = false;
    while (deliver_one(peer)) moved = true;
  }
  return moved;
}

// Hands over one message or fails one receive. Callbacks may post and cancel: nothing is held
// across.
bool Matcher::deliver_one(Peer& peer) {
  for (auto message = peer.messages.begin(); message != peer.messages.end(); ++message) {
    const auto receive =
        std::find_if(peer.receives.begin(), peer.receives.end(),
                     [&](const Receive& r) { return same_lane(r.tag, message->tag); });
    if (receive == peer.receives.end()) continue;
    const Receive to = *receive;
    Message taken = std::move(*message);
    peer.receives.erase(receive);
    peer.messages.erase(message);
    peer.kept_bytes -= taken.size();
    if (taken.device) {
      to.sink->received_on_device(to.cookie, taken.tag, std::move(taken.device));
      return true;
    }
    to.sink->received(to.cookie, taken.tag, taken.data);
    if (spare_.size() < kSpareBuffers) spare_.push_back(std::move(taken.data));
    return true;
  }
  std::vector<Receive>& doomed = peer.sends.empty() ? peer.receives : peer.sends;
  if (!peer.lost || doomed.empty()) return false;
  const Receive first = doomed.front();
  doomed.erase(doomed.begin());
  const Error error = *peer.lost;
  first.sink->failed(first.cookie, error);
  return true;
}

void Matcher::mark_ready(int rank, Peer& peer) {
  if (peer.ready) return;
  peer.ready = true;
  ready_.push_back(rank);
}

// Looks whether a message that nobody has asked for so far belongs to another call than ours of the
// same number, and says so. True if there is nothing else to be done with it.
bool Matcher::foreign(int from, const Tag& tag) {
  const bool question = tag.piece == Tag::kQuestion;
  for (const Open& each : open_) {
    if (each.call != tag.call) continue;
    if (may_be_one_call(each.fingerprint, tag.fingerprint)) return question;
    each.sink->disagreed(from, tag, each.fingerprint);
    return true;
  }
  for (const Open& each : done_) {
    if (each.sink == nullptr || each.call != tag.call) continue;
    if (may_be_one_call(each.fingerprint, tag.fingerprint)) return question;
    if (notices_ != nullptr) notices_->disagreed(from, tag, each.fingerprint);
    return true;
  }
  return false;
}

void Matcher::open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) {
  open_.push_back({call, fingerprint, &sink});
  for (auto& entry : peers_) {
    Peer& peer = entry.second;
    for (const Message& message : peer.messages) {
      if (message.tag.call != call) continue;
      if (may_be_one_call(message.tag.fingerprint, fingerprint)) continue;
      return sink.disagreed(entry.first, message.tag, fingerprint);
    }
    std::erase_if(peer.messages, [&](const Message& message) {
      return message.tag.piece == Tag::kQuestion && message.tag.call == call;
    });
  }
}

void Matcher::close(const CallId& call) noexcept {
  const auto found =
      std::find_if(open_.begin(), open_.end(), [&](const Open& o) { return o.call == call; });
  if (found == open_.end()) return;
  done_[next_done_++ % kDone] = *found;
  *found = open_.back();
  open_.pop_back();
}

void Matcher::cancel(Sink& sink, const CallId& call) noexcept {
  std::erase_if(open_, [&](const Open& o) { return o.sink == &sink; });
  for (auto& entry : peers_) {
    Peer& peer = entry.second;
    std::erase_if(peer.receives, [&](const Receive& r) { return r.sink == &sink; });
    std::erase_if(peer.sends, [&](const Receive& s) { return s.sink == &sink; });
    std::erase_if(peer.messages, [&](const Message& m) {
      if (m.tag.call != call) return false;
      peer.kept_bytes -= m.size();
      return true;
    });
  }
  if (call.group.from_controller()) return;  // retire_before() covers these
  closed_.push_back(call);
  if (closed_.size() > kClosedCalls) closed_.pop_front();
}

void Matcher::retire_before(const GroupTag& tag) noexcept {
  retired_before_ = std::max(retired_before_, tag);
  for (auto& entry : peers_) {
    Peer& peer = entry.second;
    std::erase_if(peer.messages, [&](const Message& m) {
      if (!stale(m.tag.call)) return false;
      peer.kept_bytes -= m.size();
      return true;
    });
  }
}

void Matcher::fail_peer(int rank, const std::string& why, int blamed) {
  Peer& peer = peers_[rank];
  if (peer.lost) return;
  peer.lost.emplace(ErrorCode::kPeerLost, why, std::vector<int>{blamed});
  mark_ready(rank, peer);
}

const Error* Matcher::lost(int rank) const noexcept {
  const auto it = peers_.find(rank);
  return it != peers_.end() && it->second.lost ? &*it->second.lost : nullptr;
}

std::vector<int> Matcher::awaited() const {
  std::vector<int> ranks;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.receives.empty()) ranks.push_back(rank);
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::size_t Matcher::kept_bytes(int rank) const noexcept {
  const auto it = peers_.find(rank);
  return it == peers_.end() ? 0 : it->second.kept_bytes;
}

bool Matcher::stale(const CallId& call) const noexcept {
  if (call.group.from_controller()) return call.group < retired_before_;
  return std::find(closed_.begin(), closed_.end(), call) != closed_.end();
}

}  // namespace motley
