// Ranks on any hosts talk through UCX: eager active messages that carry their whole header.
//
// Sends are copied, so UCX never reads a caller's memory later. Each sender keeps at most a window
// of bytes on the way to a receiver: the receiver says how many it has taken, and counts what it
// keeps beyond kKeptBytes as not taken. Messages are numbered, as UCX does not promise that a large
// one is not overtaken by a small one.
#include <fmt/format.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <utility>
#include <vector>

#include "comm/control/wake.h"
#include "comm/transport/factory.h"
#include "comm/transport/loss_news.h"
#include "comm/transport/matched_transport.h"
#include "comm/transport/rendezvous.h"
#include "comm/transport/seal.h"
#include "comm/transport/ucx_header.h"
#include "comm/transport/ucx_peer.h"
#include "comm/transport/ucx_worker.h"

namespace motley {
namespace {

constexpr std::size_t kWindowBytes = 8 << 20;  // to one receiver, not yet taken by it
constexpr std::size_t kKeptBytes = 64 << 20;   // of one sender's messages that nobody asked for yet
constexpr int kSteps = 64;                     // of UCX, in one poll
constexpr int kYields = 16;                    // polls in vain before sleeping
constexpr Duration kLongestSleep = seconds(1);
constexpr Duration kConnectSleep = seconds(0.002);  // between looks at what has no descriptor
constexpr Duration kCloseTime = seconds(1);         // for what is under way to leave this process
constexpr Duration kFlushTime = seconds(0.05);      // the same, if only UCX's own buffers hold any

class UcxTransport final : public MatchedTransport {
 public:
  explicit UcxTransport(const TransportSetup& setup)
      : rank_(setup.rank),
        max_message_bytes_(std::max<std::size_t>(setup.options.segment_bytes, 1)),
        hosts_(setup.hosts),
        window_(std::max(kWindowBytes, 4 * max_message_bytes_)),
        peers_(static_cast<std::size_t>(setup.size)),
        worker_({.message = [this](ConstBytes message) { take(message); },
                 .broken = [this](int peer, const std::string& why) { report_lost(peer, why); }},
                {.device = setup.network.device,
                 .v6 = setup.network.v6,
                 .ports = setup.options.ports}) {
    for (int to = 0; to < setup.size; ++to) peer(to).joined = to != rank_ && setup.joins(to);
    if (getrandom(&session_, sizeof(session_), 0) != sizeof(session_)) {
      throw_errno("draw a random number");
    }
  }
  ~UcxTransport() override;

  void connect(const TransportSetup& setup);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(peers_.size()); }
  const char* name() const noexcept override { return "ucx"; }
  std::size_t max_message_bytes() const noexcept override { return max_message_bytes_; }
  Link link() const noexcept override { return {}; }
  std::vector<int> hosts() const override { return hosts_; }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    assert(peer(to).joined && data.size() <= max_message_bytes_);
    Peer& receiver = peer(to);
    if (!receiver.lost && receiver.queue.empty() && send(to, tag, data)) return true;
    receiver.queue.push_back({tag, data, &sink, cookie});
    return false;
  }
  bool poll() override;
  void wait(TimePoint until) override;
  void sleep(TimePoint until) override;
  void wake() noexcept override { bell_.signal(); }

  void cancel(Sink& sink, const CallId& call) noexcept override {
    for (Peer& it : peers_) it.forget(sink);
    matcher_.cancel(sink, call);
  }
  std::uint64_t refused() const noexcept override { return refused_; }
  void report_lost(int lost, const std::string& why) noexcept override {
    news_.add(lost, why);
    wake();
  }

 private:
  using Peer = UcxPeer;

  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }

  bool send(int to, const Tag& tag, ConstBytes data);
  void send(int to, UcxHeader header, ConstBytes data);
  void take(ConstBytes message);
  void take_data(const UcxHeader& header, ConstBytes data);
  void arrived(int from, const Tag& tag, ConstBytes data);
  bool take_news();
  void lose(int lost, const std::string& why);
  std::uint64_t first_culprit() const noexcept;
  int culprit_of(std::uint64_t sequence) const noexcept {
    return sequence <= peers_.size() ? static_cast<int>(sequence) - 1 : -1;
  }
  bool retry_sends(int to);
  void give_credit(int from);
  std::vector<int> unconnected();
  std::vector<int> unflushed();
  void step_towards(const std::vector<int>& missing, const TransportSetup& setup);

  const int rank_;
  const std::size_t max_message_bytes_;
  const std::vector<int> hosts_;
  const std::uint64_t window_;
  std::uint64_t session_ = 0;
  std::atomic<std::uint64_t> refused_{0};
  std::vector<Peer> peers_;
  int idle_polls_ = 0;
  bool closing_ = false;  // nothing is handed over any more

  Wake bell_;
  LossNews news_;

  UcxWorker worker_;  // calls us back until it is gone, so it goes first
};

// --- Sending ------------------------------------------------------------------------------------

bool UcxTransport::send(int to, const Tag& tag, ConstBytes data) {
  Peer& receiver = peer(to);
  if (receiver.sent_bytes - receiver.taken_bytes + UcxHeader::cost(data.size()) > window_)
    return false;
  receiver.sent_bytes += UcxHeader::cost(data.size());
  send(to, {.sequence = receiver.next_out++, .kind = UcxHeader::Kind::kData, .tag = tag}, data);
  return true;
}

void UcxTransport::send(int to, UcxHeader header, ConstBytes data) {
  header.session = peer(to).session;
  header.seal = peer(to).seal_out;
  header.from = static_cast<std::uint32_t>(rank_);
  std::array<std::byte, UcxHeader::kBytes> bytes;
  header.write(bytes.data());
  worker_.send(to, bytes, data);
}

// Callbacks may send and cancel, so each leaves the queue before it is called.
bool UcxTransport::retry_sends(int to) {
  Peer& receiver = peer(to);
  bool moved = false;
  while (!receiver.queue.empty()) {
    const UcxPeer::Queued next = receiver.queue.front();
    const Error* const loss = receiver.lost ? matcher_.lost(to) : nullptr;
    if (loss == nullptr && !send(to, next.tag, next.data)) break;
    receiver.queue.pop_front();
    moved = true;
    loss != nullptr ? next.sink->failed(next.cookie, *loss) : next.sink->sent(next.cookie);
  }
  return moved;
}

// Told in quarters of the window, which leaves room for the largest message at any time.
void UcxTransport::give_credit(int from) {
  Peer& sender = peer(from);
  const std::uint64_t kept = matcher_.kept_bytes(from);
  const std::uint64_t taken = sender.arrived_bytes - (kept > kKeptBytes ? kept - kKeptBytes : 0);
  if (sender.lost || taken < sender.credited_bytes + window_ / 4) return;
  sender.credited_bytes = taken;
  send(from, {.sequence = taken, .kind = UcxHeader::Kind::kCredit}, {});
}

// --- Receiving ----------------------------------------------------------------------------------

void UcxTransport::take(ConstBytes message) {
  const auto header = UcxHeader::read(message);
  if (!header || header->session != session_ || header->from >= peers_.size() ||
      !peers_[header->from].joined || !same_seal(header->seal, peers_[header->from].seal_in)) {
    ++refused_;
    return;
  }
  Peer& sender = peers_[header->from];
  if (sender.lost || closing_) return;
  switch (header->kind) {
    case UcxHeader::Kind::kHello:
      sender.greeted = true;
      break;
    case UcxHeader::Kind::kReady:
      sender.ready = true;
      break;
    case UcxHeader::Kind::kData:
      take_data(*header, message.subspan(UcxHeader::kBytes));
      break;
    case UcxHeader::Kind::kCredit:
      sender.taken_bytes = std::max(sender.taken_bytes, header->sequence);
      break;
    case UcxHeader::Kind::kBye:
      sender.left = true;
      sender.left_for = culprit_of(header->sequence);
      break;
  }
}

void UcxTransport::take_data(const UcxHeader& header, ConstBytes data) {
  Peer& sender = peers_[header.from];
  const int from = static_cast<int>(header.from);
  if (header.sequence < sender.next_in) return;
  if (header.sequence > sender.next_in) {
    sender.early.try_emplace(header.sequence, header.tag, data);
    return;
  }
  arrived(from, header.tag, data);
  while (!sender.early.empty() && sender.early.begin()->first == sender.next_in) {
    const UcxPeer::Early next = std::move(sender.early.extract(sender.early.begin()).mapped());
    arrived(from, next.tag, next.data);
  }
}

void UcxTransport::arrived(int from, const Tag& tag, ConstBytes data) {
  Peer& sender = peer(from);
  ++sender.next_in;
  sender.arrived_bytes += UcxHeader::cost(data.size());
  matcher_.arrived(from, tag, data);
}

// --- Progress -----------------------------------------------------------------------------------

bool UcxTransport::poll() {
  bool moved = false;
  for (int i = 0; i < kSteps && worker_.progress(); ++i) moved = true;
  if (news_.any()) moved |= take_news();
  for (int to = 0; to < size(); ++to) moved |= retry_sends(to);
  moved |= matcher_.deliver();
  for (int from = 0; from < size(); ++from) give_credit(from);
  if (moved) idle_polls_ = 0;
  return moved;
}

bool UcxTransport::take_news() {
  const std::vector<LossNews::Loss> news = news_.take();
  for (const auto& [lost, why] : news) {
    if (lost < 0 || lost >= size() || lost == rank_ || peer(lost).lost) continue;
    lose(lost, why);
  }
  return !news.empty();
}

// Who leaves because it lost a rank is not to blame: that rank is.
void UcxTransport::lose(int lost, const std::string& why) {
  Peer& it = peer(lost);
  it.lost = true;
  if (it.left_for >= 0 && it.left_for != rank_) {
    matcher_.fail_peer(lost, fmt::format("rank {} lost it and has left", lost), it.left_for);
  } else {
    matcher_.fail_peer(lost, it.left ? "it has left" : why);
  }
  worker_.disconnect(lost);
}

// The first waits after something moved return at once: more is likely to follow.
void UcxTransport::wait(TimePoint until) {
  if (idle_polls_ < kYields) {
    ++idle_polls_;
    sched_yield();
    return;
  }
  sleep(until);
}

void UcxTransport::sleep(TimePoint until) {
  if (!worker_.arm()) return;
  bell_.wait(worker_.descriptor(),
             std::clamp(until - Clock::real().now(), Duration(0), kLongestSleep));
}

// --- Beginning and end --------------------------------------------------------------------------

// A connection is made by both sides' progress, so a rank whose own connections work goes on until
// everyone's do.
void UcxTransport::connect(const TransportSetup& setup) {
  const Sealer sealer(setup.options.token);
  const std::string mine = fmt::format("{:016x}", session_) + worker_.address();
  const std::vector<std::string> all = exchange(setup, "ucx/address", mine);
  for (int to = 0; to < size(); ++to) {
    if (!peer(to).joined) continue;
    const std::string& text = all[static_cast<std::size_t>(to)];
    peer(to).session = std::stoull(text.substr(0, 16), nullptr, 16);
    peer(to).seal_out = sealer.seal(peer(to).session, rank_);
    peer(to).seal_in = sealer.seal(session_, to);
    worker_.connect(to, text.substr(16));
    send(to, {.kind = UcxHeader::Kind::kHello}, {});
  }
  for (std::vector<int> missing = unconnected(); !missing.empty(); missing = unconnected()) {
    step_towards(missing, setup);
  }
  for (int to = 0; to < size(); ++to) {
    if (peer(to).joined) send(to, {.kind = UcxHeader::Kind::kReady}, {});
  }
  for (int from = 0; from < size(); ++from) {
    while (peer(from).joined && !peer(from).ready) step_towards({from}, setup);
  }
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
// report a flush while the peer makes no progress, so that is waited for but shortly.
UcxTransport::~UcxTransport() {
  closing_ = true;
  try {
    if (news_.any()) take_news();
    const std::uint64_t culprit = first_culprit();
    for (int to = 0; to < size(); ++to) {
      if (!peer(to).joined || peer(to).lost) continue;
      send(to, {.sequence = culprit, .kind = UcxHeader::Kind::kBye}, {});
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

}  // namespace

std::unique_ptr<Transport> make_ucx_transport(const TransportSetup& setup) {
  auto transport = std::make_unique<UcxTransport>(setup);
  transport->connect(setup);
  return transport;
}

}  // namespace motley
