// comm/bootstrap/endpoint.h: addresses and ports of the internet, as text and as the kernel wants
// them.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

namespace motley {

// The TCP ports that may be listened at.
struct PortRange {
  int low = 0;  // 0: any port
  int high = 0;

  // "29600-29699", "29600", or empty for any. Throws kInvalid.
  static PortRange parse(std::string_view text);
  bool any() const noexcept { return low == 0; }
  std::string to_text() const;
};

// An IPv4 or IPv6 address.
class IpAddress {
 public:
  // Of a socket address of either family.
  explicit IpAddress(const sockaddr& address);

  bool is_v6() const noexcept { return v6_; }
  bool is_loopback() const noexcept;
  // Reaches only the hosts of one cable, and needs to be told which.
  bool is_link_local() const noexcept;
  // Whether the first `bits` bits are those of `other`, which has the same family.
  bool same_network(const IpAddress& other, int bits) const noexcept;
  std::string to_text() const;
  // "tcp://10.0.0.1:4000", "tcp://[fd00::1]:4000".
  std::string url(int port) const;
  sockaddr_storage socket_address(int port, socklen_t& length) const noexcept;

  friend bool operator==(const IpAddress& a, const IpAddress& b) noexcept = default;

 private:
  bool v6_ = false;
  unsigned char bytes_[16] = {};  // of IPv4 the first four
};

// What follows "scheme://": a host or address, and a port.
struct Endpoint {
  std::string host;  // without brackets
  int port = 0;
  // "node1:4000", "[fd00::1]:4000". Throws kInvalid, calling the text `what`.
  static Endpoint parse(std::string_view text, std::string_view what);
};

// The addresses of `host`, a name or an address; empty if it has none now. Names of the loopback
// (localhost, x.localhost: RFC 6761, 6.3) have one wherever nobody else knows them.
std::vector<IpAddress> resolve(const std::string& host);

}  // namespace motley
