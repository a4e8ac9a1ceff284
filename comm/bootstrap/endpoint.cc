#include "comm/bootstrap/endpoint.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "comm/error.h"

namespace motley {
namespace {

std::optional<int> parse_port(std::string_view text) {
  int port = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  if (port < 1 || port > 65535) return std::nullopt;
  return port;
}

}  // namespace

PortRange PortRange::parse(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t dash = text.find('-');
  const auto low = parse_port(text.substr(0, dash));
  const auto high = dash == text.npos ? low : parse_port(text.substr(dash + 1));
  if (!low || !high || *low > *high) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("options: MOTLEY_PORTS is \"{}\". Use two ports in [1, 65535], as in "
                            "29600-29699.",
                            text));
  }
  return {*low, *high};
}

std::string PortRange::to_text() const { return fmt::format("{}-{}", low, high); }

IpAddress::IpAddress(const sockaddr& address) : v6_(address.sa_family == AF_INET6) {
  if (v6_) {
    std::memcpy(bytes_, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
  } else {
    std::memcpy(bytes_, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  }
}

bool IpAddress::is_loopback() const noexcept {
  if (!v6_) return bytes_[0] == 127;
  return bytes_[15] == 1 && std::all_of(bytes_, bytes_ + 15, [](auto b) { return b == 0; });
}

bool IpAddress::is_link_local() const noexcept {
  return v6_ ? bytes_[0] == 0xfe && (bytes_[1] & 0xc0) == 0x80
             : bytes_[0] == 169 && bytes_[1] == 254;
}

bool IpAddress::same_network(const IpAddress& other, int bits) const noexcept {
  if (v6_ != other.v6_) return false;
  for (int i = 0; bits > 0; ++i, bits -= 8) {
    const int mask = bits >= 8 ? 0xff : 0xff & (0xff << (8 - bits));
    if (((bytes_[i] ^ other.bytes_[i]) & mask) != 0) return false;
  }
  return true;
}

std::string IpAddress::to_text() const {
  char text[INET6_ADDRSTRLEN] = {};
  return inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_, text, sizeof text);
}

std::string IpAddress::url(int port) const {
  return v6_ ? fmt::format("tcp://[{}]:{}", to_text(), port)
             : fmt::format("tcp://{}:{}", to_text(), port);
}

sockaddr_storage IpAddress::socket_address(int port, socklen_t& length) const noexcept {
  sockaddr_storage storage{};
  if (v6_) {
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&address.sin6_addr, bytes_, 16);
    length = sizeof(sockaddr_in6);
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&address.sin_addr, bytes_, 4);
    length = sizeof(sockaddr_in);
  }
  return storage;
}

Endpoint Endpoint::parse(std::string_view text, std::string_view what) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint{.host = std::string(text.substr(0, colon))};
  const auto port = colon == text.npos ? std::nullopt : parse_port(text.substr(colon + 1));
  std::string& host = endpoint.host;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (!port || host.empty() || (!bracketed && host.find(':') != host.npos)) {
    throw Error(ErrorCode::kInvalid,
                fmt::format("{} is \"{}\", which has no host and port. Use host:port, or "
                            "[address]:port with an IPv6 address.",
                            what, text));
  }
  endpoint.port = *port;
  return endpoint;
}

std::vector<IpAddress> resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) {
    if (host == "localhost" || host.ends_with(".localhost")) return resolve("127.0.0.1");
    return {};
  }
  std::vector<IpAddress> addresses;
  for (const addrinfo* it = found; it != nullptr; it = it->ai_next) {
    if (it->ai_family != AF_INET && it->ai_family != AF_INET6) continue;
    const IpAddress address(*it->ai_addr);
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(address);
    }
  }
  freeaddrinfo(found);
  return addresses;
}

}  // namespace motley
