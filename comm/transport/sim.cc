#include "comm/transport/sim.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "comm/transport/matcher.h"

namespace motley {
namespace {

constexpr std::uint32_t kBlockSlots = 1024;
constexpr std::size_t kInlineBytes = 24;

}  // namespace

// On its way. Events that are not messages use a slot too.
struct SimNetwork::Message {
  enum Kind : std::uint8_t { kMessage, kDeath, kNews };

  Tag tag;
  int from = 0;
  int to = 0;
  Kind kind = kMessage;
  bool admitted = false;  // has its turn at the receiver's port
  std::uint32_t size = 0;
  std::array<std::byte, kInlineBytes> few;
  std::vector<std::byte> many;  // if it is longer; the memory stays with the slot

  ConstBytes data() const noexcept {
    return size <= kInlineBytes ? ConstBytes(few.data(), size) : ConstBytes(many);
  }
};

// What the network knows of one rank.
struct SimNetwork::Port {
  Matcher matcher;
  TimePoint stall_from = TimePoint::max();
  TimePoint stall_until{};
  TimePoint died_at{};
  bool dead = false;
  bool seated = false;
  std::uint32_t touched = 0;                     // counts what happened to the rank
  std::unordered_map<int, TimePoint> last_sent;  // by receiver, when it arrives; with jitter only
};

class SimNetwork::Seat final : public Transport {
 public:
  Seat(SimNetwork& network, int rank) : network_(network), rank_(rank) {}
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat() override { port().seated = false; }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return network_.options_.topology.ranks(); }
  const char* name() const noexcept override { return "sim"; }
  Link link() const noexcept override { return network_.options().topology.costs().between; }
  std::size_t max_message_bytes() const noexcept override {
    return network_.options_.max_message_bytes;
  }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    if (port().dead) return true;
    if (matcher().lost(to) == nullptr) {
      network_.send(rank_, to, tag, data);
      return true;
    }
    matcher().fail_send(to, sink, cookie);
    network_.mark_ready(rank_);
    return false;
  }

  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    matcher().post(from, tag, sink, cookie);
    if (matcher().ready()) network_.mark_ready(rank_);
  }

  bool poll() override { return !port().dead && matcher().deliver(); }
  void wait(TimePoint until) override { network_.wait(rank_, until); }
  void wake() noexcept override { network_.touch(rank_); }

  void cancel(Sink& sink, const CallId& call) noexcept override { matcher().cancel(sink, call); }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    matcher().open(sink, call, fingerprint);
  }
  void close(const CallId& call) noexcept override { matcher().close(call); }
  void listen(Sink& notices) noexcept override { matcher().listen(notices); }
  void retire_before(const GroupTag& tag) noexcept override { matcher().retire_before(tag); }

  void report_lost(int peer, const std::string& why) noexcept override {
    matcher().fail_peer(peer, why);
    network_.mark_ready(rank_);
  }

 private:
  Port& port() const noexcept { return network_.port(rank_); }
  Matcher& matcher() const noexcept { return port().matcher; }

  SimNetwork& network_;
  int rank_;
};

SimNetwork::SimNetwork(SimOptions options)
    : options_(std::move(options)),
      traffic_(options_.topology),
      random_(options_.seed),
      ports_(static_cast<std::size_t>(options_.topology.ranks())) {}

SimNetwork::~SimNetwork() = default;

std::unique_ptr<Transport> SimNetwork::transport(int rank) {
  port(rank).seated = true;
  return std::make_unique<Seat>(*this, rank);
}

SimNetwork::Port& SimNetwork::port(int rank) noexcept {
  return ports_[static_cast<std::size_t>(rank)];
}
const SimNetwork::Port& SimNetwork::port(int rank) const noexcept {
  return ports_[static_cast<std::size_t>(rank)];
}
SimNetwork::Message& SimNetwork::message(std::uint32_t slot) noexcept {
  return blocks_[slot / kBlockSlots][slot % kBlockSlots];
}

std::uint32_t SimNetwork::take_slot() {
  if (free_slots_.empty()) {
    const auto first = static_cast<std::uint32_t>(blocks_.size()) * kBlockSlots;
    if (first + kBlockSlots > EventQueue::kMaxSlot) {
      throw Error(
          ErrorCode::kUnavailable,
          fmt::format("sim: {} messages are on their way at once. Send less, or in turns.", first));
    }
    blocks_.push_back(std::make_unique<Message[]>(kBlockSlots));
    for (std::uint32_t i = kBlockSlots; i-- > 0;) free_slots_.push_back(first + i);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  return slot;
}

void SimNetwork::send(int from, int to, const Tag& tag, ConstBytes data) {
  const std::uint32_t slot = take_slot();
  Message& m = message(slot);
  m.kind = Message::kMessage;
  m.tag = tag;
  m.from = from;
  m.to = to;
  m.admitted = false;
  m.size = static_cast<std::uint32_t>(data.size());
  if (data.size() > kInlineBytes) {
    m.many.assign(data.begin(), data.end());
  } else if (!data.empty()) {
    std::memcpy(m.few.data(), data.data(), data.size());
  }
  TimePoint arrival(
      traffic_.send(from, to, static_cast<double>(data.size()), now_.time_since_epoch()));
  if (options_.jitter > 0) {
    std::uniform_real_distribution<double> share(0, options_.jitter);
    const Duration latency = options_.topology.link(from, to).latency;
    arrival += seconds(to_seconds(latency) * share(random_));
    TimePoint& last = port(from).last_sent[to];  // a message does not overtake the one before it
    last = arrival = std::max(arrival, last);
  }
  queue_.push(arrival.time_since_epoch().count(), slot);
}

bool SimNetwork::step() {
  if (deliver_ready()) return true;
  if (queue_.empty()) return false;
  const EventQueue::Event event = queue_.pop();
  now_ = std::max(now_, TimePoint(Duration(event.time)));
  Message& m = message(event.slot());
  if (m.kind == Message::kMessage) {
    arrive(event);
    return true;
  }
  if (m.kind == Message::kDeath) {
    die(m.to);
  } else {
    tell_all(m.to);
  }
  free_slots_.push_back(event.slot());
  return true;
}

// A message is at its receiver: it waits for a fault to pass, or its turn at the port, or is handed
// over.
void SimNetwork::arrive(const EventQueue::Event& event) {
  Message& m = message(event.slot());
  Port& receiver = port(m.to);
  const bool lost = receiver.dead || !receiver.seated;
  if (!lost) {
    TimePoint later = held_until(m);
    if (later <= now_ && !m.admitted)
      later = TimePoint(traffic_.turn(m.from, m.to, now_.time_since_epoch()));
    if (later <= now_ && !m.admitted) {
      m.admitted = true;
      later = TimePoint(traffic_.take_in(m.from, m.to, m.size, now_.time_since_epoch()));
    }
    if (later == TimePoint::max()) {
      free_slots_.push_back(event.slot());  // held for ever
      return;
    }
    if (later > now_) {
      queue_.push({later.time_since_epoch().count(), event.order});
      return;
    }
    ++delivered_;
    receiver.matcher.arrived(m.from, m.tag, m.data());
    receiver.matcher.deliver();
    touch(m.to);
  }
  free_slots_.push_back(event.slot());
}

// When the faults that keep a message from its receiver now have passed.
TimePoint SimNetwork::held_until(const Message& m) const noexcept {
  TimePoint until{};
  const Port& receiver = port(m.to);
  if (receiver.stall_from <= now_ && now_ < receiver.stall_until) until = receiver.stall_until;
  for (const Partition& p : partitions_) {
    const bool apart =
        p.side[static_cast<std::size_t>(m.from)] != p.side[static_cast<std::size_t>(m.to)];
    if (apart && p.from <= now_ && now_ < p.until) until = std::max(until, p.until);
  }
  return until;
}

TimePoint SimNetwork::next_event() const noexcept {
  if (!ready_.empty()) return now_;
  if (queue_.empty()) return TimePoint::max();
  return std::max(now_, TimePoint(Duration(queue_.top().time)));
}

void SimNetwork::advance_to(TimePoint time) noexcept { now_ = std::max(now_, time); }

void SimNetwork::mark_ready(int rank) { ready_.push_back(rank); }

bool SimNetwork::deliver_ready() {
  while (!ready_.empty()) {
    const int rank = ready_.back();
    ready_.pop_back();
    if (port(rank).dead || !port(rank).matcher.deliver()) continue;
    touch(rank);
    return true;
  }
  return false;
}

void SimNetwork::touch(int rank) {
  ++port(rank).touched;
  if (options_.notify) options_.notify(rank);
}

void SimNetwork::wait(int rank, TimePoint until) {
  Port& me = port(rank);
  if (!me.dead) {
    if (options_.block) {
      options_.block(rank, until);
    } else {
      const std::uint32_t before = me.touched;
      while (me.touched == before && !me.dead && next_event() <= until && step()) {
      }
      if (me.touched == before && !me.dead) {
        if (until == TimePoint::max()) {
          throw Error(ErrorCode::kTimeout,
                      fmt::format("rank {} waits, and nothing is left that could happen.", rank),
                      {rank});
        }
        advance_to(until);
      }
    }
  }
  if (me.dead) {
    throw Error(ErrorCode::kAborted,
                fmt::format("rank {} was killed after {:.6f} s of virtual time.", rank,
                            to_seconds(me.died_at.time_since_epoch())),
                {rank});
  }
}

void SimNetwork::SimClock::sleep_until(TimePoint until) {
  while (network_.next_event() <= until && network_.step()) {
  }
  network_.advance_to(until);
}

void SimNetwork::kill(int rank, TimePoint at) {
  const std::uint32_t slot = take_slot();
  message(slot).kind = Message::kDeath;
  message(slot).to = rank;
  queue_.push(at.time_since_epoch().count(), slot);
}

void SimNetwork::die(int rank) {
  Port& victim = port(rank);
  if (victim.dead) return;
  victim.dead = true;
  victim.died_at = now_;
  touch(rank);
  if (options_.detection == Duration::max()) return;
  const std::uint32_t slot = take_slot();
  message(slot).kind = Message::kNews;
  message(slot).to = rank;
  queue_.push((now_ + options_.detection).time_since_epoch().count(), slot);
}

void SimNetwork::tell_all(int dead) {
  const std::string why = fmt::format("it died after {:.6f} s of virtual time",
                                      to_seconds(port(dead).died_at.time_since_epoch()));
  for (int rank = 0; rank < options_.topology.ranks(); ++rank) {
    if (port(rank).dead) continue;
    port(rank).matcher.fail_peer(dead, why);
    port(rank).matcher.deliver();
    touch(rank);
  }
}

void SimNetwork::stall(int rank, TimePoint from, TimePoint until) {
  port(rank).stall_from = from;
  port(rank).stall_until = until;
}

void SimNetwork::partition(const std::vector<int>& side, TimePoint from, TimePoint until) {
  Partition p{from, until, std::vector<char>(ports_.size(), 0)};
  for (const int rank : side) p.side[static_cast<std::size_t>(rank)] = 1;
  partitions_.push_back(std::move(p));
}

bool SimNetwork::is_alive(int rank) const noexcept { return !port(rank).dead; }

}  // namespace motley
