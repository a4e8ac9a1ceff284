// comm/control/peer_probe.h: asks ranks on other hosts, without the controller, whether they live.
//
// While the controller answers, its word is enough and nothing is asked. Once it is silent, either
// it is gone, or this host is cut off; only the peers can tell which. One datagram there, one back.
// A peer that never answered in good times (a firewall) is never taken for dead.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/bootstrap/endpoint.h"
#include "comm/clock.h"

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

  // Readable when there is something to receive().
  int descriptor() const noexcept { return fd_; }
  void receive(TimePoint now);
  // To be called often. `silence`: how long the controller has not been heard. Returns ranks that
  // have not answered for a lease, each once.
  std::vector<int> on_time(TimePoint now, Duration silence, Duration lease);

 private:
  using Key = std::array<std::uint8_t, 16>;
  enum class Kind : std::uint8_t { kPing, kPong, kBye };
  struct Peer {
    sockaddr_storage to{};
    socklen_t length = 0;
    Key key{};
    TimePoint heard{};
    bool known = false;  // has been heard
    bool gone = false;   // has said goodbye, or was reported as silent
  };

  void listen(const IpAddress& own, const PortRange& ports);
  void send(const Peer& peer, Kind kind) const;

  const int rank_;
  const Duration heartbeat_;
  int fd_ = -1;
  Key key_{};
  std::string address_;
  std::map<int, Peer> peers_;
  TimePoint next_{};
  TimePoint asking_since_{};  // zero: not asking
  int introductions_;         // left
};

}  // namespace motley
