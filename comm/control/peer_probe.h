// comm/control/peer_probe.h: asks ranks on other hosts, without the controller, whether they live.
//
// While the controller answers, its word of who lives is enough, and only those are asked whom this
// rank waits for: a peer may live, but be cut off from here. Once the controller is silent, either
// it is gone, or this host is cut off; only the peers can tell which, and all are asked. One
// datagram there, one back. A peer that never answered in good times (a firewall) is never taken
// for dead.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/bootstrap/endpoint.h"
#include "comm/clock.h"
#include "comm/control/awaited_peers.h"

namespace motley {

class PeerProbe {
 public:
  // Listens at a UDP port of `own`, one of `ports`. Throws kIo.
  PeerProbe(int rank, const IpAddress& own, const PortRange& ports, Duration heartbeat);
  PeerProbe(const PeerProbe&) = delete;
  PeerProbe& operator=(const PeerProbe&) = delete;
  ~PeerProbe();  // says goodbye: whoever leaves is not to be taken for dead

  // For the other ranks' add(): holds a secret, without which a datagram is not taken for a rank's.
  const std::string& address() const noexcept { return address_; }
  // Watches over `rank`. Does nothing if `address` is no address.
  void add(int rank, const std::string& address);
  // Who is asked while the controller answers. Before the first on_time(); else nobody is.
  void ask_awaited(std::shared_ptr<const AwaitedPeers> awaited) { awaited_ = std::move(awaited); }

  // Readable when there is something to receive().
  int descriptor() const noexcept { return fd_; }
  void receive(TimePoint now);
  // To be called often. `silence`: how long the controller has not been heard. Returns ranks that
  // have not answered for a lease, each once.
  std::vector<int> on_time(TimePoint now, Duration silence, Duration lease);
  // Ranks that were awaited, and asked, for two leases without an answer, while the controller
  // answered; each once. After on_time().
  std::vector<int> unreachable(TimePoint now, Duration lease);

 private:
  using Key = std::array<std::uint8_t, 16>;
  enum class Kind : std::uint8_t { kPing, kPong, kBye };
  struct Peer {
    sockaddr_storage to{};
    socklen_t length = 0;
    Key key{};
    TimePoint heard{};
    TimePoint awaited_since{};  // and asked; zero: not awaited
    bool known = false;         // has been heard
    bool gone = false;          // has said goodbye, or was reported as silent
  };

  void listen(const IpAddress& own, const PortRange& ports);
  void send(const Peer& peer, Kind kind) const;
  void introduce();
  void ask_those_awaited(TimePoint now);
  void await_nobody() noexcept;

  const int rank_;
  const Duration heartbeat_;
  int fd_ = -1;
  Key key_{};
  std::string address_;
  std::map<int, Peer> peers_;
  std::shared_ptr<const AwaitedPeers> awaited_;
  TimePoint next_{};
  TimePoint asking_since_{};  // zero: not asking
  int introductions_;         // left
};

}  // namespace motley
