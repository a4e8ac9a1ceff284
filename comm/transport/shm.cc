// Ranks of one host talk through shared memory: one inbox a rank, one ring a sender in it. Whole
// collectives go by another way, shm_team.h.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/transport/factory.h"
#include "comm/transport/loss_news.h"
#include "comm/transport/matched_transport.h"
#include "comm/transport/rendezvous.h"
#include "comm/transport/seal.h"
#include "comm/transport/shm_heap.h"
#include "comm/transport/shm_limits.h"
#include "comm/transport/shm_segment.h"
#include "comm/transport/shm_team.h"

namespace motley {
namespace {

constexpr std::size_t kKeptBytes = 64 << 20;  // of one peer; more stays in its ring and stops it
// How long to look before sleeping. The kernel often moves who is woken to the core of whoever woke
// it, so that ranks that sleep a lot gather on one core: longer than a piece of a call takes there.
constexpr Duration kSpin = seconds(100e-6);
constexpr Duration kLongestLook = seconds(2e-6);
constexpr Link kUsualLink = {.latency = std::chrono::nanoseconds(400),
                             .bytes_per_second = 5e9,
                             .per_message = std::chrono::nanoseconds(150)};
constexpr int kLooks = 64;  // between two looks at the clock
constexpr Duration kLongestSleep = seconds(1);
constexpr Duration kStarvedSleep = seconds(1e-3);  // while what is awaited rings no bell

std::size_t payload_bytes(const Options& options) {
  return (std::max<std::size_t>(options.segment_bytes, 1) + kCacheLine - 1) / kCacheLine *
         kCacheLine;
}

// The place of each rank among those that are joined.
std::vector<int> places(const TransportSetup& setup) {
  std::vector<int> places;
  int next = 0;
  for (int rank = 0; rank < setup.size; ++rank) places.push_back(setup.joins(rank) ? next++ : -1);
  return places;
}

class ShmTransport final : public MatchedTransport {
 public:
  ShmTransport(const TransportSetup& setup, ShmSegment inbox, std::vector<ShmSegment> others,
               const ShmTeam::Abilities& abilities)
      : rank_(setup.rank),
        cores_(abilities.cores),
        payload_bytes_(payload_bytes(setup.options)),
        places_(places(setup)),
        own_(std::make_shared<ShmHeap>(std::move(inbox))),
        others_(std::move(others)),
        peers_(static_cast<std::size_t>(setup.joined())) {
    std::vector<const ShmSegment*> segments(places_.size());
    bool all_have_heaps = !own_->segment().heap().empty();
    auto segment = others_.begin();
    for (int rank = 0; rank < setup.size; ++rank) {
      if (rank == rank_ || !setup.joins(rank)) continue;
      Peer& it = peer(rank);
      it.rank = rank;
      it.in = own_->segment().ring_from(place(rank));
      it.out = segment->ring_from(place(rank_));
      it.out.sign(segment->seal_of(rank_, setup.options.token));
      it.seal = own_->segment().seal_of(rank, setup.options.token);
      it.doorbell = &segment->doorbell();
      segments[static_cast<std::size_t>(rank)] = &*segment;
      all_have_heaps &= !segment->heap().empty();
      ++segment;
    }
    if (all_have_heaps) team_.emplace(rank_, own_, segments, abilities, setup.clock);
  }

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(places_.size()); }
  const char* name() const noexcept override { return "shm"; }
  std::size_t max_message_bytes() const noexcept override { return payload_bytes_; }
  Link link() const noexcept override { return kUsualLink; }
  int cores() const noexcept override { return cores_; }
  Team* team() noexcept override { return team_ ? &*team_ : nullptr; }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    assert(to != rank_ && data.size() <= payload_bytes_);
    Peer& receiver = peer(to);
    if (!receiver.lost && receiver.queue.empty() && send(receiver, tag, data)) return true;
    receiver.queue.push_back({tag, data, &sink, cookie});
    return false;
  }

  bool poll() override {
    const bool moved_in = take_messages();
    const bool news = news_.any() && take_news();
    const bool moved_out = retry_sends();
    return matcher_.deliver() || moved_in || news || moved_out;
  }

  void wait(TimePoint until) override;
  void sleep(TimePoint until) override;
  void wake() noexcept override {
    woken_.store(true, std::memory_order_seq_cst);
    own_->segment().doorbell().ring();
  }

  void cancel(Sink& sink, const CallId& call) noexcept override {
    for (Peer& it : peers_) {
      std::erase_if(it.queue, [&](const Queued& send) { return send.sink == &sink; });
    }
    matcher_.cancel(sink, call);
  }

  std::uint64_t refused() const noexcept override {
    return refused_.load(std::memory_order_relaxed);
  }

  void report_lost(int lost, const std::string& why) noexcept override {
    news_.add(lost, why);
    wake();
  }

 private:
  struct Queued {  // a send that found no room
    Tag tag;
    ConstBytes data;
    Sink* sink;
    std::uint32_t cookie;
  };
  struct Peer {
    int rank = -1;  // -1: ourselves
    ShmRing in;
    ShmRing out;
    Doorbell* doorbell = nullptr;
    std::uint64_t seal = 0;  // what it shows with its messages
    std::deque<Queued> queue;
    bool lost = false;
  };

  int place(int rank) const noexcept { return places_[static_cast<std::size_t>(rank)]; }
  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(place(rank))]; }

  bool send(Peer& receiver, const Tag& tag, ConstBytes data) noexcept;
  bool take_messages();
  bool take_messages(Peer& sender);
  bool take_news();
  bool retry_sends();
  bool something_to_do() const noexcept;
  bool look_for_a_while() noexcept;
  bool shares_core() noexcept;
  void even_out(std::uint32_t here, int others) noexcept;
  bool readable(const Peer& sender) const noexcept {
    return !sender.lost && matcher_.kept_bytes(sender.rank) < kKeptBytes;
  }

  const int rank_;
  const int cores_;
  CoreHop hop_;
  const std::size_t payload_bytes_;
  const std::vector<int> places_;   // by rank: among those joined; -1: not one of them
  std::shared_ptr<ShmHeap> own_;    // our memory, inbox and all; buffers from it may outlive us
  std::vector<ShmSegment> others_;  // by rank, without our own
  std::vector<Peer> peers_;         // by place
  std::optional<ShmTeam> team_;     // where every rank has a heap

  std::atomic<bool> woken_{false};
  std::atomic<std::uint64_t> refused_{0};  // messages of writers without the token
  LossNews news_;
};

bool ShmTransport::send(Peer& receiver, const Tag& tag, ConstBytes data) noexcept {
  if (!receiver.out.write(tag, data)) {
    receiver.out.ask_for_room();
    if (!receiver.out.write(tag, data)) return false;
  }
  receiver.doorbell->ring();
  return true;
}

bool ShmTransport::take_messages() {
  bool moved = false;
  for (Peer& sender : peers_) {
    if (sender.rank >= 0) moved |= take_messages(sender);
  }
  return moved;
}

// At most one ring's worth, so that no sender keeps the others from being heard.
bool ShmTransport::take_messages(Peer& sender) {
  std::uint32_t taken = 0;
  while (taken < ShmRing::kSlots && readable(sender) && sender.in.has_message()) {
    const ShmRing::Message message = sender.in.front();
    if (message.data.size() > payload_bytes_) {
      report_lost(sender.rank, fmt::format("it wrote a message of {} bytes into a slot of {}",
                                           message.data.size(), payload_bytes_));
      sender.lost = true;
      return true;
    }
    if (same_seal(sender.in.seal(), sender.seal)) {
      matcher_.arrived(sender.rank, message.tag, message.data);
    } else {
      refused_.fetch_add(1, std::memory_order_relaxed);
    }
    if (sender.in.pop()) sender.doorbell->ring();
    ++taken;
  }
  return taken != 0;
}

// What the dead sent before is still handed over.
bool ShmTransport::take_news() {
  const std::vector<LossNews::Loss> news = news_.take();
  for (const auto& [lost, why] : news) {
    if (lost < 0 || lost >= size() || lost == rank_ || place(lost) < 0) continue;
    while (take_messages(peer(lost))) {
    }
    peer(lost).lost = true;
    if (team_) team_->lose(lost);
    matcher_.fail_peer(lost, why);
  }
  return !news.empty();
}

// Callbacks may send and cancel, so each leaves the queue before it is called.
bool ShmTransport::retry_sends() {
  bool moved = false;
  for (Peer& receiver : peers_) {
    while (!receiver.queue.empty()) {
      const Queued next = receiver.queue.front();
      const Error* const loss = receiver.lost ? matcher_.lost(receiver.rank) : nullptr;
      if (loss == nullptr && !send(receiver, next.tag, next.data)) break;
      receiver.queue.pop_front();
      moved = true;
      if (loss != nullptr) {
        next.sink->failed(next.cookie, *loss);
      } else {
        next.sink->sent(next.cookie);
      }
    }
  }
  return moved;
}

bool ShmTransport::something_to_do() const noexcept {
  if (woken_.load(std::memory_order_seq_cst)) return true;
  if (team_ && team_->ready()) return true;
  for (const Peer& it : peers_) {
    if (it.rank < 0) continue;
    if (readable(it) && it.in.has_message()) return true;
    if (!it.queue.empty() && (it.lost || it.out.has_room())) return true;
  }
  return false;
}

// A short message to an awake rank costs less than waking it up. Time counts while this rank looks,
// not while another has the core: who has just got it back must not sleep for that. Where ranks
// share a core they take turns meanwhile; one that has a core to itself, though others share
// theirs, keeps it.
bool ShmTransport::look_for_a_while() noexcept {
  TimePoint last = Clock::real().now();
  for (Duration looked{}; looked < kSpin;) {
    const bool yields = shares_core();
    for (int i = 0; i < (yields ? 1 : kLooks); ++i) {
      if (something_to_do()) return true;
    }
    if (yields) sched_yield();
    const TimePoint now = Clock::real().now();
    looked += std::min(now - std::exchange(last, now), kLongestLook);
  }
  return false;
}

// Whether another rank was last seen on this rank's core. Sleeping would keep both there: who is
// woken stays where it was, and only cores that two want are shared out anew. Even so the kernel
// may leave a core with fewer ranks than another for long: then one moves there.
bool ShmTransport::shares_core() noexcept {
  const std::uint32_t here = own_->segment().doorbell().look_from_here();
  int others = 0;
  bool is_last = true;  // of those on this core
  for (const Peer& it : peers_) {
    if (it.rank < 0 || it.doorbell->core.load(std::memory_order_relaxed) != here) continue;
    ++others;
    is_last = is_last && it.rank < rank_;
  }
  if (others == 0 || !is_last) {
    hop_.apart();
  } else if (hop_.due(Clock::real())) {
    even_out(here, others);
  }
  return others != 0;
}

// Moves to the core with fewest ranks, if there will be no more of them than stay behind.
void ShmTransport::even_out(std::uint32_t here, int others) noexcept {
  std::vector<int> ranks_on(CPU_SETSIZE, 0);
  for (const Peer& it : peers_) {
    if (it.rank < 0) continue;
    const std::uint32_t core = it.doorbell->core.load(std::memory_order_relaxed);
    if (core != 0 && core <= ranks_on.size()) ++ranks_on[core - 1];
  }
  std::vector<int> full = {static_cast<int>(here) - 1};
  const int least = fewest_on_allowed_cores(ranks_on, full.front());
  if (least >= others) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (ranks_on[static_cast<std::size_t>(core)] > least) full.push_back(core);
  }
  if (hop_to_another_core(full)) own_->segment().doorbell().look_from_here();
}

void ShmTransport::wait(TimePoint until) {
  if (!look_for_a_while()) return sleep(until);
  woken_.store(false, std::memory_order_seq_cst);
}

void ShmTransport::sleep(TimePoint until) {
  Doorbell& bell = own_->segment().doorbell();
  const Duration longest = team_ && team_->starved() ? kStarvedSleep : kLongestSleep;
  const std::uint32_t rings = bell.rings.load(std::memory_order_seq_cst);
  bell.waiting.store(1, std::memory_order_seq_cst);
  if (!something_to_do()) {
    futex_wait(bell.rings, rings, std::min(until, Clock::real().now() + longest));
  }
  bell.waiting.store(0, std::memory_order_seq_cst);
  woken_.store(false, std::memory_order_seq_cst);
}

ShmSegment::Plan plan_of(const TransportSetup& setup, int rank) {
  return {.rank = rank,
          .size = setup.joined(),
          .payload_bytes = payload_bytes(setup.options),
          .token = setup.options.token};
}

// Maps the others' memory; throws what any rank could not do, on all ranks.
std::vector<ShmSegment> map_others(const TransportSetup& setup,
                                   const std::vector<std::string>& addresses) {
  std::vector<ShmSegment> others;
  try {
    for (int rank = 0; rank < setup.size; ++rank) {
      if (rank == setup.rank || !setup.joins(rank)) continue;
      others.push_back(
          ShmSegment::open(addresses[static_cast<std::size_t>(rank)], plan_of(setup, rank)));
    }
  } catch (const Error& error) {
    setup.store.set(fmt::format("{}/shm/mapped/{}", setup.name, setup.rank), error.what());
    throw;
  }
  const std::vector<std::string> troubles = exchange(setup, "shm/mapped", "");
  for (int rank = 0; rank < setup.size; ++rank) {
    const std::string& why = troubles[static_cast<std::size_t>(rank)];
    if (why.empty()) continue;
    throw Error(ErrorCode::kUnavailable, fmt::format("shm: rank {} reports: {}", rank, why),
                {rank});
  }
  return others;
}

// What all ranks can do: each says which cores it may run on, and whether it can read what the
// others do not share.
ShmTeam::Abilities find_abilities(const TransportSetup& setup,
                                  const std::vector<ShmSegment>& others) {
  const bool reads = setup.options.cma == "auto" &&
                     std::all_of(others.begin(), others.end(), [](const ShmSegment& segment) {
                       return segment.rest_of_owner().can_be_read();
                     });
  std::vector<std::string> cores =
      exchange(setup, "shm/machine", (reads ? "r" : "-") + allowed_cores());
  bool all_read = true;
  for (std::string& text : cores) {
    if (text.empty()) continue;  // a rank of another host
    all_read &= text.front() == 'r';
    text.erase(0, 1);
  }
  const int usable = std::min(setup.joined(), usable_cores(cores));
  return {.cores = usable, .spins = setup.joined() <= usable, .reads_private = all_read};
}

}  // namespace

std::unique_ptr<Transport> make_shm_transport(const TransportSetup& setup) {
  ShmSegment inbox =
      ShmSegment::create(plan_of(setup, setup.rank), usable_heap_bytes(setup.joined()));
  const std::vector<std::string> addresses = exchange(setup, "shm/address", inbox.address());
  std::vector<ShmSegment> others = map_others(setup, addresses);
  const ShmTeam::Abilities abilities = find_abilities(setup, others);
  inbox.close_descriptor();
  return std::make_unique<ShmTransport>(setup, std::move(inbox), std::move(others), abilities);
}

}  // namespace motley
