// The data path of the UCX transport: see ucx_transport.h.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>

#include "comm/transport/seal.h"
#include "comm/transport/ucx_transport.h"

namespace motley {
namespace {

constexpr std::size_t kKeptBytes = 64 << 20;  // of one sender's messages that nobody asked for yet
constexpr int kSteps = 64;                    // of UCX, in one poll
constexpr int kYields = 16;                   // polls in vain before sleeping
constexpr std::uint32_t kVainPolls = 4096;    // between two tellings of whom we wait for
constexpr Duration kLongestSleep = seconds(1);

}  // namespace

// --- Sending ------------------------------------------------------------------------------------

UcxTransport::Sent UcxTransport::send(int to, UcxPeer::Queued& message) {
  Peer& receiver = peer(to);
  const bool on_device = static_cast<bool>(message.device);
  if (on_device && !message.device.slot->copied.done()) return Sent::kNoRoom;
  const std::uint64_t cost = UcxHeader::cost(on_device ? message.device.size : message.data.size());
  if (receiver.sent_bytes - receiver.taken_bytes + cost > receiver.use.window) return Sent::kNoRoom;
  receiver.sent_bytes += cost;
  const auto head =
      head_for(to, {.sequence = receiver.next_out++,
                    .kind = on_device ? UcxHeader::Kind::kDeviceData : UcxHeader::Kind::kData,
                    .tag = message.tag});
  if (on_device) {
    receiver.offers[receiver.next_out - 1] = {message.sink, message.cookie};
    worker_.offer(to, head, std::move(message.device));
    return Sent::kOffered;
  }
  if (message.data.empty() || message.data.size() < receiver.use.rendezvous_from) {
    worker_.send(to, head, message.data);
    return Sent::kTaken;
  }
  receiver.offers[receiver.next_out - 1] = {message.sink, message.cookie};
  worker_.offer(to, head, message.data);
  return Sent::kOffered;
}

void UcxTransport::send(int to, const UcxHeader& header) {
  worker_.send(to, head_for(to, header), {});
}

std::array<std::byte, UcxHeader::kBytes> UcxTransport::head_for(int to, UcxHeader header) const {
  const Peer& receiver = peers_[static_cast<std::size_t>(to)];
  header.session = receiver.session;
  header.seal = receiver.seal_out;
  header.from = static_cast<std::uint32_t>(rank_);
  std::array<std::byte, UcxHeader::kBytes> bytes;
  header.write(bytes.data());
  return bytes;
}

// UCX would call an offer done while much of it is still on its way.
void UcxTransport::fetched(Peer& by, std::uint64_t sequence) {
  const auto found = by.offers.find(sequence);
  if (found == by.offers.end()) return;
  const UcxPeer::Offer offer = found->second;
  by.offers.erase(found);
  offer.sink->sent(offer.cookie);
}

void UcxTransport::use_links(const Topology& topology) {
  for (int to = 0; to < size(); ++to) {
    if (!peer(to).joined) continue;
    const Topology::Route route = topology.route(rank_, to);
    Link link = *route.link;
    link.bytes_per_second =
        std::min({link.bytes_per_second, route.out_bytes_per_second, route.in_bytes_per_second});
    const bool guessed = *route.link == this->link();
    peer(to).use = guessed ? use_unknown(limits_) : use_of(link, limits_);
  }
}

// Callbacks may send and cancel, so each leaves the queue before it is called.
bool UcxTransport::retry_sends(int to) {
  Peer& receiver = peer(to);
  bool moved = false;
  while (!receiver.queue.empty()) {
    UcxPeer::Queued& first = receiver.queue.front();
    const Error* const loss = receiver.lost ? matcher_.lost(to) : nullptr;
    const Sent sent = loss == nullptr ? send(to, first) : Sent::kNoRoom;
    if (loss == nullptr && sent == Sent::kNoRoom) break;
    const UcxPeer::Queued next = std::move(first);
    receiver.queue.pop_front();
    moved = true;
    if (loss != nullptr) next.sink->failed(next.cookie, *loss);
    if (sent == Sent::kTaken) next.sink->sent(next.cookie);
  }
  return moved;
}

// Told in quarters of the least window, which leaves room for the largest message at any time,
// whatever window the sender has.
void UcxTransport::give_credit(int from) {
  Peer& sender = peer(from);
  const std::uint64_t kept = matcher_.kept_bytes(from);
  const std::uint64_t taken = sender.arrived_bytes - (kept > kKeptBytes ? kept - kKeptBytes : 0);
  if (sender.lost || taken < sender.credited_bytes + limits_.least_window / 4) return;
  sender.credited_bytes = taken;
  send(from, {.sequence = taken, .kind = UcxHeader::Kind::kCredit});
}

// --- Receiving ----------------------------------------------------------------------------------

// Counts what is not.
bool UcxTransport::is_of_peer(const std::optional<UcxHeader>& header) noexcept {
  if (header && header->session == session_ && header->from < peers_.size() &&
      peers_[header->from].joined && same_seal(header->seal, peers_[header->from].seal_in)) {
    return true;
  }
  ++refused_;
  return false;
}

// Nothing is fetched of what nobody will want.
UcxWorker::Fetch UcxTransport::take_offer(ConstBytes bytes, std::size_t size) {
  auto header = UcxHeader::read(bytes);
  const bool on_device = header && header->kind == UcxHeader::Kind::kDeviceData;
  const bool fits = bytes.size() == UcxHeader::kBytes && size <= max_message_bytes_ &&
                    (!on_device || (direct_ && size != 0));
  if (!fits || (header && !on_device && header->kind != UcxHeader::Kind::kData)) header.reset();
  if (!is_of_peer(header) || closing_ || peers_[header->from].lost) return {};
  peers_[header->from].fetching.insert(header->sequence);
  return {static_cast<int>(header->from), on_device ? take(size) : DeviceMessage()};
}

void UcxTransport::take_fetched(ConstBytes bytes, DeviceMessage message) {
  const auto header = UcxHeader::read(bytes);
  if (!is_of_peer(header) || closing_ || peers_[header->from].lost) return;
  answer_fetched(*header);
  take_data(*header, std::move(message));
}

// Says so where the message came by rendezvous.
void UcxTransport::answer_fetched(const UcxHeader& header) {
  if (peers_[header.from].fetching.erase(header.sequence) == 0) return;
  send(static_cast<int>(header.from),
       {.sequence = header.sequence, .kind = UcxHeader::Kind::kFetched});
}

void UcxTransport::take(ConstBytes message) {
  const auto header = UcxHeader::read(message);
  if (!is_of_peer(header)) return;
  Peer& sender = peers_[header->from];
  if (sender.lost || closing_) return;
  switch (header->kind) {
    case UcxHeader::Kind::kHello:
      sender.greeted = true;
      break;
    case UcxHeader::Kind::kReady:
      sender.ready = true;
      break;
    case UcxHeader::Kind::kFetched:
      fetched(sender, header->sequence);
      break;
    case UcxHeader::Kind::kData:
      answer_fetched(*header);
      take_data(*header, message.subspan(UcxHeader::kBytes));
      break;
    case UcxHeader::Kind::kDeviceData:  // never comes eagerly
      ++refused_;
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

template <class Data>
void UcxTransport::take_data(const UcxHeader& header, Data data) {
  Peer& sender = peers_[header.from];
  const int from = static_cast<int>(header.from);
  if (header.sequence < sender.next_in) return;
  if (header.sequence > sender.next_in) {
    sender.early.try_emplace(header.sequence, header.tag, std::move(data));
    return;
  }
  arrived(from, header.tag, std::move(data));
  while (!sender.early.empty() && sender.early.begin()->first == sender.next_in) {
    UcxPeer::Early next = std::move(sender.early.extract(sender.early.begin()).mapped());
    if (next.device) {
      arrived(from, next.tag, std::move(next.device));
    } else {
      arrived(from, next.tag, ConstBytes(next.data));
    }
  }
}

template <class Data>
void UcxTransport::arrived(int from, const Tag& tag, Data data) {
  Peer& sender = peer(from);
  ++sender.next_in;
  sender.arrived_bytes += UcxHeader::cost(size_of(data));
  matcher_.arrived(from, tag, std::move(data));
}

// --- Progress -----------------------------------------------------------------------------------

bool UcxTransport::poll() {
  std::optional<UseDevice> device;  // UCX and calls that go on use it
  if (direct_) device.emplace(direct_->device);
  bool moved = false;
  for (int i = 0; i < kSteps && worker_.progress(); ++i) moved = true;
  if (news_.any()) moved |= take_news();
  for (int to = 0; to < size(); ++to) moved |= retry_sends(to);
  moved |= matcher_.deliver();
  for (int from = 0; from < size(); ++from) give_credit(from);
  if (moved) {
    idle_polls_ = 0;
    vain_polls_ = 0;
    slept_ = false;
  } else if (++vain_polls_ % kVainPolls == 0) {
    tell_awaited();
  }
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
  for (const auto& [sequence, offer] : it.offers) {
    matcher_.fail_send(lost, *offer.sink, offer.cookie);
  }
  it.offers.clear();
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

// Whether a message would go but for the work that makes it.
bool UcxTransport::awaits_device() const {
  return std::ranges::any_of(peers_, [](const Peer& it) {
    return !it.queue.empty() && it.queue.front().device &&
           !it.queue.front().device.slot->copied.done();
  });
}

void UcxTransport::sleep(TimePoint until) {
  if (std::exchange(slept_, true)) tell_awaited();
  if (direct_ && awaits_device()) {  // not for long, and its end wakes nobody
    sched_yield();
    return;
  }
  if (!worker_.arm()) return;
  bell_.wait(worker_.descriptor(),
             std::clamp(until - Clock::real().now(), Duration(0), kLongestSleep));
}

// Those of which a message is expected, or that have no room for ours.
void UcxTransport::tell_awaited() {
  if (!awaited_) return;
  std::vector<int> ranks = matcher_.awaited();
  for (int to = 0; to < size(); ++to) {
    if (!peer(to).queue.empty()) ranks.push_back(to);
  }
  std::sort(ranks.begin(), ranks.end());
  awaited_->tell(std::move(ranks));
}

}  // namespace motley
