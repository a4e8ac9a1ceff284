#include "comm/control/peer_probe.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <sstream>

#include "comm/error.h"

namespace motley {
namespace {

constexpr std::array<std::uint8_t, 8> kMagic = {'m', 'o', 't', 'l', 'e', 'y', 'p', '1'};
constexpr std::size_t kKeyAt = kMagic.size();
constexpr std::size_t kRankAt = kKeyAt + 16;
constexpr std::size_t kKindAt = kRankAt + 4;
constexpr std::size_t kBytes = kKindAt + 1;
constexpr int kIntroductions = 25;  // so many heartbeats a peer has for its first answer

}  // namespace

PeerProbe::PeerProbe(int rank, const IpAddress& own, const PortRange& ports, Duration heartbeat)
    : rank_(rank), heartbeat_(heartbeat), introductions_(kIntroductions) {
  if (getrandom(key_.data(), key_.size(), 0) != static_cast<ssize_t>(key_.size())) {
    throw_errno("draw a random key");
  }
  listen(own, ports);
}

PeerProbe::~PeerProbe() {
  for (const auto& [rank, peer] : peers_) {
    if (peer.known) send(peer, Kind::kBye);
  }
  if (fd_ >= 0) close(fd_);
}

void PeerProbe::listen(const IpAddress& own, const PortRange& ports) {
  const int family = own.is_v6() ? AF_INET6 : AF_INET;
  fd_ = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) throw_errno("open a datagram socket");
  for (int port = ports.low; port <= ports.high; ++port) {  // any: 0, once
    socklen_t length = 0;
    sockaddr_storage at = own.socket_address(port, length);
    if (bind(fd_, reinterpret_cast<const sockaddr*>(&at), length) != 0) continue;
    length = sizeof at;
    getsockname(fd_, reinterpret_cast<sockaddr*>(&at), &length);
    const auto& in = reinterpret_cast<const sockaddr_in&>(at);  // the port lies alike in both
    address_ = fmt::format("{} {} {:02x}", own.to_text(), ntohs(in.sin_port), fmt::join(key_, ""));
    return;
  }
  close(fd_);
  throw_errno(fmt::format("bind a datagram socket to {}", own.to_text()));
}

void PeerProbe::add(int rank, const std::string& address) {
  std::istringstream in(address);
  std::string host, key;
  int port = 0;
  in >> host >> port >> key;
  const std::vector<IpAddress> found = resolve(host);
  Peer peer;
  if (in.fail() || found.empty() || key.size() != 2 * peer.key.size()) return;
  for (std::size_t i = 0; i < peer.key.size(); ++i) {
    const char* const digits = key.data() + 2 * i;
    if (std::from_chars(digits, digits + 2, peer.key[i], 16).ptr != digits + 2) return;
  }
  peer.to = found.front().socket_address(port, peer.length);
  peers_[rank] = peer;
}

void PeerProbe::send(const Peer& peer, Kind kind) const {
  std::array<std::uint8_t, kBytes> datagram{};
  std::copy(kMagic.begin(), kMagic.end(), datagram.begin());
  std::copy(peer.key.begin(), peer.key.end(), datagram.begin() + kKeyAt);
  for (std::size_t i = 0; i < 4; ++i) {
    datagram[kRankAt + i] = static_cast<std::uint8_t>(static_cast<unsigned>(rank_) >> (8 * i));
  }
  datagram[kKindAt] = static_cast<std::uint8_t>(kind);
  // What is not sent is like what gets lost: it is asked again.
  (void)sendto(fd_, datagram.data(), datagram.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&peer.to), peer.length);
}

void PeerProbe::receive(TimePoint now) {
  std::array<std::uint8_t, kBytes + 1> datagram{};
  while (true) {
    const ssize_t size = recv(fd_, datagram.data(), datagram.size(), 0);
    if (size < 0) return;  // nothing more, or the echo of a host that could not be reached
    if (size != static_cast<ssize_t>(kBytes)) continue;
    if (!std::equal(kMagic.begin(), kMagic.end(), datagram.begin())) continue;
    if (!std::equal(key_.begin(), key_.end(), datagram.begin() + kKeyAt)) continue;
    unsigned rank = 0;
    for (std::size_t i = 0; i < 4; ++i) rank |= unsigned{datagram[kRankAt + i]} << (8 * i);
    const auto found = peers_.find(static_cast<int>(rank));
    if (found == peers_.end()) continue;
    found->second.known = true;
    found->second.heard = now;
    if (datagram[kKindAt] == static_cast<std::uint8_t>(Kind::kBye)) found->second.gone = true;
    if (datagram[kKindAt] == static_cast<std::uint8_t>(Kind::kPing)) {
      send(found->second, Kind::kPong);
    }
  }
}

void PeerProbe::introduce() {
  if (introductions_ == 0) return;
  --introductions_;
  for (const auto& [rank, peer] : peers_) {
    if (!peer.known) send(peer, Kind::kPing);
  }
}

void PeerProbe::await_nobody() noexcept {
  for (auto& [rank, peer] : peers_) peer.awaited_since = {};
}

void PeerProbe::ask_those_awaited(TimePoint now) {
  const std::vector<int> ranks = awaited_ ? awaited_->ranks() : std::vector<int>();
  for (auto& [rank, peer] : peers_) {
    const bool awaited = std::binary_search(ranks.begin(), ranks.end(), rank);
    if (!awaited || !peer.known || peer.gone) {
      peer.awaited_since = {};
      continue;
    }
    if (peer.awaited_since == TimePoint{}) peer.awaited_since = now;
    send(peer, Kind::kPing);
  }
}

std::vector<int> PeerProbe::unreachable(TimePoint now, Duration lease) {
  std::vector<int> ranks;
  for (auto& [rank, peer] : peers_) {
    if (peer.awaited_since == TimePoint{} || peer.gone) continue;
    if (now - std::max(peer.awaited_since, peer.heard) < 2 * lease) continue;
    peer.gone = true;
    ranks.push_back(rank);
  }
  return ranks;
}

std::vector<int> PeerProbe::on_time(TimePoint now, Duration silence, Duration lease) {
  if (now < next_) return {};
  next_ = now + heartbeat_;
  introduce();
  if (silence < lease / 2) {
    asking_since_ = {};
    ask_those_awaited(now);
    return {};
  }
  await_nobody();
  if (asking_since_ == TimePoint{}) asking_since_ = now;
  std::vector<int> silent;
  for (auto& [rank, peer] : peers_) {
    if (!peer.known || peer.gone) continue;
    if (now - std::max(asking_since_, peer.heard) >= lease) {
      peer.gone = true;
      silent.push_back(rank);
    } else {
      send(peer, Kind::kPing);
    }
  }
  return silent;
}

}  // namespace motley
