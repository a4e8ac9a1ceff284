// Datagrams of anybody to a rank that asks its peers whether they live: whatever comes, it reports
// only ranks that it watches over, each once, and whoever does not know its key changes nothing.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <set>
#include <sstream>

#include "comm/bootstrap/interface.h"
#include "comm/control/peer_probe.h"
#include "test/support/fuzz.h"

namespace motley::test {
namespace {

constexpr Duration kBeat = seconds(0.1);
constexpr Duration kLease = seconds(1);

// What rank 0 is told, and by whom.
class World {
 public:
  World() : probe_(0, loopback(), {}, kBeat) {
    std::istringstream in(probe_.address());
    std::string host, digits;
    in >> host >> port_ >> digits;
    for (std::size_t i = 0; i < digits.size(); i += 2) {
      unsigned char byte = 0;
      std::from_chars(digits.data() + i, digits.data() + i + 2, byte, 16);
      key_ += static_cast<char>(byte);
    }
    socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    auto awaited = std::make_shared<AwaitedPeers>();
    awaited->tell({1, 2});
    probe_.ask_awaited(awaited);
    probe_.add(1, own_address());
    probe_.add(2, own_address());
  }
  ~World() { close(socket_); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  PeerProbe& probe() noexcept { return probe_; }
  const std::string& key() const noexcept { return key_; }
  void send(const std::string& datagram) const {
    socklen_t length = 0;
    const sockaddr_storage to = loopback().socket_address(port_, length);
    (void)sendto(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&to), length);
  }

 private:
  static IpAddress loopback() { return resolve("127.0.0.1").at(0); }
  // Where the peers would be: nobody reads what is sent there.
  std::string own_address() const {
    return probe_.address().substr(0, probe_.address().find(' ')) + " 9 " + std::string(32, '0');
  }

  PeerProbe probe_;
  int port_ = 0;
  int socket_ = -1;
  std::string key_;  // as in datagrams
};

// A whole datagram with the right key, a mixture, or anything.
std::string datagram(FuzzedDataProvider& in, const std::string& key, bool& sealed) {
  sealed = in.ConsumeBool();
  if (!sealed && in.ConsumeBool()) return in.ConsumeRandomLengthString(64);
  std::string text = in.ConsumeBool() ? "motleyp1" : in.ConsumeBytesAsString(8);
  text += sealed ? key : in.ConsumeBytesAsString(16);
  const auto rank =
      in.ConsumeBool() ? in.ConsumeIntegralInRange<unsigned>(0, 3) : in.ConsumeIntegral<unsigned>();
  for (int i = 0; i < 4; ++i) text += static_cast<char>(rank >> (8 * i));
  return text + in.ConsumeRandomLengthString(3);
}

}  // namespace
}  // namespace motley::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace motley;
  FuzzedDataProvider in(data, size);
  TimePoint now(seconds(100));
  test::World world;
  std::set<int> lost;
  bool heard = false;  // by somebody who knows the key
  const auto report = [&](const std::vector<int>& ranks) {
    for (const int rank : ranks) {
      test::require(heard && (rank == 1 || rank == 2) && lost.insert(rank).second);
    }
  };
  while (in.remaining_bytes() > 0) {
    now += std::chrono::milliseconds(in.ConsumeIntegralInRange<int>(0, 1500));
    if (in.ConsumeIntegralInRange<int>(0, 7) == 0) {
      world.probe().add(in.ConsumeIntegralInRange<int>(3, 5), in.ConsumeRandomLengthString(60));
    } else {
      bool sealed = false;
      world.send(test::datagram(in, world.key(), sealed));
      heard |= sealed;
      world.probe().receive(now);
    }
    const bool silent = in.ConsumeBool();
    report(world.probe().on_time(now, silent ? test::kLease : Duration(0), test::kLease));
    report(world.probe().unreachable(now, test::kLease));
  }
  return 0;
}
