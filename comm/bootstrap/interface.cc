#include "comm/bootstrap/interface.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <utility>

#include "comm/error.h"

namespace motley {
namespace {

constexpr Duration kMoment = seconds(0.02);  // for a better candidate than the one that answered

class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const noexcept { return fd_; }
  // 0, or the reason why not.
  int connect_to(const IpAddress& address, int port) const noexcept {
    socklen_t length = 0;
    const sockaddr_storage to = address.socket_address(port, length);
    return connect(fd_, reinterpret_cast<const sockaddr*>(&to), length) == 0 ? 0 : errno;
  }
  int error() const noexcept {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
  }

 private:
  int fd_;
};

int family_of(const IpAddress& address) { return address.is_v6() ? AF_INET6 : AF_INET; }

int count_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  const bool v6 = mask->sa_family == AF_INET6;
  const auto* bytes = v6 ? reinterpret_cast<const unsigned char*>(
                               &reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr)
                         : reinterpret_cast<const unsigned char*>(
                               &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr);
  int bits = 0;
  for (int i = 0; i < (v6 ? 16 : 4); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

std::string names(const std::vector<Interface>& all) {
  std::string text;
  for (const Interface& it : all) {
    text += fmt::format("{}{} {}/{}", text.empty() ? "" : ", ", it.name, it.address.to_text(),
                        it.prefix);
  }
  return text.empty() ? "none" : text;
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_errno("list the network interfaces");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> all;
  for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
    if (it->ifa_addr == nullptr || (it->ifa_flags & IFF_UP) == 0) continue;
    if ((it->ifa_flags & IFF_RUNNING) == 0) continue;  // no cable, or nobody at its other end
    if (it->ifa_addr->sa_family != AF_INET && it->ifa_addr->sa_family != AF_INET6) continue;
    const IpAddress address(*it->ifa_addr);
    if (address.is_link_local()) continue;
    all.push_back({it->ifa_name, address, count_bits(it->ifa_netmask)});
  }
  const auto order = [](const Interface& it) {
    return 2 * static_cast<int>(it.address.is_loopback()) + static_cast<int>(it.address.is_v6());
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Interface& a, const Interface& b) { return order(a) < order(b); });
  return all;
}

std::vector<Interface> select_interfaces(const std::vector<Interface>& all,
                                         std::string_view wanted) {
  if (wanted.empty()) return all;
  std::vector<Interface> chosen;
  const std::size_t slash = wanted.find('/');
  if (slash == wanted.npos) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const Interface& it) { return it.name == wanted; });
  } else {
    const std::string network(wanted.substr(0, slash));
    const char* const end = wanted.data() + wanted.size();
    int bits = -1;
    const bool whole = std::from_chars(wanted.data() + slash + 1, end, bits).ptr == end;
    const std::vector<IpAddress> base =
        network.find_first_not_of("0123456789abcdefABCDEF.:") == network.npos
            ? resolve(network)
            : std::vector<IpAddress>();
    if (base.empty() || !whole || bits < 0 || bits > (base.front().is_v6() ? 128 : 32)) {
      throw Error(ErrorCode::kInvalid,
                  fmt::format("options: MOTLEY_IFACE is \"{}\". Use the name of a network device, "
                              "or a subnet such as 10.1.0.0/16.",
                              wanted));
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen),
                 [&](const Interface& it) { return it.address.same_network(base.front(), bits); });
  }
  if (chosen.empty()) {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("network: no interface that is up matches \"{}\". This host has: {}. "
                            "Set MOTLEY_IFACE to one of them.",
                            wanted, names(all)));
  }
  return chosen;
}

// Connecting a datagram socket sends nothing: the kernel only looks up the way.
std::optional<Interface> route_to(const IpAddress& target, const std::vector<Interface>& all) {
  constexpr int kAnyPort = 9;
  const Socket socket(family_of(target), SOCK_DGRAM);
  if (socket.fd() < 0 || socket.connect_to(target, kAnyPort) != 0) return std::nullopt;
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&own), &length) != 0) {
    return std::nullopt;
  }
  const IpAddress source(reinterpret_cast<const sockaddr&>(own));
  for (const Interface& it : all) {
    if (it.address == source) return it;
  }
  return std::nullopt;
}

std::string reachable_url(const std::string& url) {
  constexpr std::string_view kScheme = "tcp://";
  const Endpoint bound = Endpoint::parse(url.substr(kScheme.size()), "the address listened at");
  const bool v4 = bound.host == "0.0.0.0";
  if (!v4 && bound.host != "::") return url;
  for (const Interface& it : interfaces()) {
    if (!v4 || !it.address.is_v6()) return it.address.url(bound.port);
  }
  return url;
}

std::optional<std::size_t> first_to_answer(const std::vector<std::pair<IpAddress, int>>& candidates,
                                           TimePoint deadline) {
  std::vector<Socket> sockets;
  std::vector<pollfd> items;
  for (const auto& [address, port] : candidates) {
    sockets.emplace_back(family_of(address), SOCK_STREAM);
    const int error = sockets.back().connect_to(address, port);
    const bool open = error == 0 || error == EINPROGRESS;
    items.push_back({.fd = open ? sockets.back().fd() : -1, .events = POLLOUT, .revents = 0});
  }
  std::optional<std::size_t> best;
  const auto waiting = [&] {  // for one that is better than `best`
    return std::any_of(items.begin(),
                       items.begin() + static_cast<std::ptrdiff_t>(best.value_or(items.size())),
                       [](const pollfd& item) { return item.fd >= 0; });
  };
  while (waiting()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::real().now());
    if (left.count() <= 0) break;
    poll(items.data(), items.size(), static_cast<int>(left.count()));
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (items[i].fd < 0 || items[i].revents == 0) continue;
      items[i].fd = -1;
      if (sockets[i].error() != 0 || i > best.value_or(i)) continue;
      if (!best) deadline = std::min(deadline, Clock::real().now() + kMoment);
      best = i;
    }
  }
  return best;
}

}  // namespace motley
