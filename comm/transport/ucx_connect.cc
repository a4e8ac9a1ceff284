// How the UCX transport finds its peers, and leaves them.
#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "comm/transport/rendezvous.h"
#include "comm/transport/seal.h"
#include "comm/transport/ucx_transport.h"

namespace motley {
namespace {

constexpr Duration kConnectSleep = seconds(0.002);  // between looks at what has no descriptor
constexpr Duration kCloseTime = seconds(1);         // for what is under way to leave this process
constexpr Duration kFlushTime = seconds(0.05);      // the same, if only UCX's own buffers hold any

// In what ranks tell each other: the session in hexadecimal, and how device memory is moved.
constexpr std::size_t kDeviceAt = 16;
constexpr std::size_t kBeforeAddress = kDeviceAt + 1;
enum DeviceWord : char { kInsists = 'i', kDirect = 'd', kHost = 'h' };

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

UcxTransport::UcxTransport(const TransportSetup& setup)
    : rank_(setup.rank),
      max_message_bytes_(std::max<std::size_t>(setup.options.segment_bytes, 1)),
      hosts_(setup.hosts),
      peers_(static_cast<std::size_t>(setup.size)),
      awaited_(setup.awaited),
      worker_(
          {.message = [this](ConstBytes message) { take(message); },
           .offer = [this](ConstBytes header,
                           std::size_t size) { return take_offer(header, size); },
           .device_message =
               [this](ConstBytes header, DeviceMessage message) {
                 take_fetched(header, std::move(message));
               },
           .broken = [this](int peer, const std::string& why) { report_lost(peer, why); }},
          {.device = setup.network.device, .v6 = setup.network.v6, .ports = setup.options.ports}) {
  limits_ = UcxLimits::of(setup.options, worker_.remote_memory());
  for (int to = 0; to < setup.size; ++to) {
    peer(to).joined = to != rank_ && setup.joins(to);
    peer(to).use = use_unknown(limits_);
  }
  begin_direct(setup);
  if (getrandom(&session_, sizeof(session_), 0) != sizeof(session_)) {
    throw_errno("draw a random number");
  }
}

// A connection is made by both sides' progress, so a rank whose own connections work goes on until
// everyone's do.
void UcxTransport::connect(const TransportSetup& setup) {
  const Sealer sealer(setup.options.token);
  const std::string mine =
      fmt::format("{:016x}{}", session_, device_word(setup.options)) + worker_.address();
  const std::vector<std::string> all = exchange(setup, "ucx/address", mine);
  settle_direct(all);
  for (int to = 0; to < size(); ++to) {
    if (!peer(to).joined) continue;
    const std::string& text = all[static_cast<std::size_t>(to)];
    peer(to).session = std::stoull(text.substr(0, 16), nullptr, 16);
    peer(to).seal_out = sealer.seal(peer(to).session, rank_);
    peer(to).seal_in = sealer.seal(session_, to);
    worker_.connect(to, text.substr(kBeforeAddress));
    send(to, {.kind = UcxHeader::Kind::kHello});
  }
  for (std::vector<int> missing = unconnected(); !missing.empty(); missing = unconnected()) {
    step_towards(missing, setup);
  }
  for (int to = 0; to < size(); ++to) {
    if (peer(to).joined) send(to, {.kind = UcxHeader::Kind::kReady});
  }
  for (int from = 0; from < size(); ++from) {
    while (peer(from).joined && !peer(from).ready) step_towards({from}, setup);
  }
  connected_ = true;
}

// Peers whose greeting is not here, or whom ours has not left for.
std::vector<int> UcxTransport::unconnected() {
  std::vector<int> missing = unflushed();
  for (int to = 0; to < size(); ++to) {
    if (peer(to).joined && !peer(to).greeted) missing.push_back(to);
  }
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  return missing;
}

std::vector<int> UcxTransport::unflushed() {
  std::vector<int> ranks;
  for (int to = 0; to < size(); ++to) {
    if (peer(to).joined && !worker_.flushed(to)) ranks.push_back(to);
  }
  return ranks;
}

// Makes progress; throws if that has become hopeless.
void UcxTransport::step_towards(const std::vector<int>& missing, const TransportSetup& setup) {
  const TimePoint now = Clock::real().now();
  if (setup.check) setup.check();
  if (now >= setup.deadline) {
    throw Error(
        ErrorCode::kTimeout,
        fmt::format("ucx: rank {} of {}: no connection with rank{} {}. Check that the "
                    "hosts reach each other, and set MOTLEY_IFACE to the network that "
                    "joins them.",
                    rank_, size(), missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")),
        missing);
  }
  poll();
  for (const int to : missing) {
    if (!peer(to).lost) continue;
    const Error& loss = *matcher_.lost(to);
    throw Error(ErrorCode::kPeerLost,
                fmt::format("ucx: rank {} of {}: no connection with rank {}; lost rank {}: {}.",
                            rank_, size(), to, loss.ranks().front(), loss.what()),
                loss.ranks());
  }
  wait(std::min(setup.deadline, now + kConnectSleep));
}

// For kBye: one more than the rank whose loss, told by whomever, came before our leaving; 0 if
// none.
std::uint64_t UcxTransport::first_culprit() const noexcept {
  for (int other = 0; other < static_cast<int>(peers_.size()); ++other) {
    const Error* const loss = matcher_.lost(other);
    const auto blamed = static_cast<std::size_t>(loss != nullptr ? loss->ranks().front() : rank_);
    if (loss != nullptr && !peers_[blamed].left) return blamed + 1;
  }
  return 0;
}

// What was sent before still arrives, unless a receiver takes nothing for kCloseTime. UCX may not
// report a flush while the peer makes no progress, so that is waited for but shortly. After a join
// that failed nothing is said: half-made connections that break meanwhile may stop UCX 1.13 (an
// assertion in tcp_ep.c), so they are closed as they are.
UcxTransport::~UcxTransport() {
  closing_ = true;
  if (connected_) say_goodbye();
  matcher_ = {};  // gives back slots of ours
}

void UcxTransport::say_goodbye() noexcept {
  try {
    if (news_.any()) take_news();
    const std::uint64_t culprit = first_culprit();
    for (int to = 0; to < size(); ++to) {
      if (!peer(to).joined || peer(to).lost) continue;
      send(to, {.sequence = culprit, .kind = UcxHeader::Kind::kBye});
    }
    const TimePoint start = Clock::real().now();
    const auto late = [&](Duration bound) { return Clock::real().now() >= start + bound; };
    const auto leaving = [&] { return worker_.sending() || !unflushed().empty(); };
    while (leaving() && !late(worker_.sending() ? kCloseTime : kFlushTime)) {
      const bool moved = worker_.progress();
      if (news_.any()) take_news();
      if (!moved) sleep(Clock::real().now() + kConnectSleep);
    }
  } catch (const std::exception&) {  // memory ran out: close without farewell
  }
}

// Whether this rank moves device memory by itself.
void UcxTransport::begin_direct(const TransportSetup& setup) {
  const std::string& wanted = setup.options.ucx_device;
  if (wanted == "staged") return;
  if (worker_.device_memory()) {
    direct_.emplace(current_device(), setup.options.staging_bytes);
  } else if (wanted == "direct") {
    throw Error(ErrorCode::kUnavailable,
                fmt::format("ucx: rank {} of {}: MOTLEY_UCX_DEVICE is \"direct\", but UCX knows no "
                            "CUDA memory here. Install a UCX that was built with CUDA, on a host "
                            "with a device, or use \"staged\".",
                            rank_, size()));
  }
}

char UcxTransport::device_word(const Options& options) const noexcept {
  if (!direct_) return kHost;
  return options.ucx_device == "direct" ? kInsists : kDirect;
}

// All ranks do or none does. Where one insists and another cannot, all find it here, before there
// are connections: one that broke while it is made might stop a rank (see the destructor).
void UcxTransport::settle_direct(const std::vector<std::string>& addresses) {
  std::vector<int> insist, cannot;
  for (int other = 0; other < size(); ++other) {
    if (other != rank_ && !peer(other).joined) continue;
    const char word = addresses[static_cast<std::size_t>(other)].at(kDeviceAt);
    if (word == kInsists) insist.push_back(other);
    if (word == kHost) cannot.push_back(other);
  }
  if (cannot.empty()) return;
  direct_.reset();
  if (insist.empty()) return;
  throw Error(ErrorCode::kUnavailable,
              fmt::format("ucx: rank {} of {}: MOTLEY_UCX_DEVICE is \"direct\" on {}, but {} "
                          "move{} device memory through the host. Use the same on all ranks.",
                          rank_, size(), ranks_text(insist), ranks_text(cannot),
                          cannot.size() == 1 ? "s" : ""),
              cannot);
}

std::unique_ptr<Transport> make_ucx_transport(const TransportSetup& setup) {
  auto transport = std::make_unique<UcxTransport>(setup);
  transport->connect(setup);
  return transport;
}

}  // namespace motley
