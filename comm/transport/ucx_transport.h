// comm/transport/ucx_transport.h: ranks on any hosts talk through UCX: active messages that carry
// their whole header. ucx.cc moves messages, ucx_connect.cc begins and ends.
//
// Sends are copied, so UCX never reads a caller's memory later, and what is fetched by rendezvous
// lands in memory of ours first. Each sender keeps at most a window of bytes on the way to a
// receiver (ucx_link.h): the receiver says how many it has taken, and counts what it keeps beyond
// kKeptBytes as not taken. Messages are numbered, as UCX does not promise that a large one is not
// overtaken by a small one.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/wake.h"
#include "comm/transport/factory.h"
#include "comm/transport/loss_news.h"
#include "comm/transport/matched_transport.h"
#include "comm/transport/ucx_header.h"
#include "comm/transport/ucx_link.h"
#include "comm/transport/ucx_peer.h"
#include "comm/transport/ucx_worker.h"

namespace motley {

class UcxTransport final : public MatchedTransport {
 public:
  explicit UcxTransport(const TransportSetup& setup);
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
    const UcxPeer::Queued it{tag, data, &sink, cookie};
    const bool may_go = !receiver.lost && receiver.queue.empty();
    const Sent sent = may_go ? send(to, it) : Sent::kNoRoom;
    if (sent == Sent::kNoRoom) receiver.queue.push_back(it);
    return sent == Sent::kTaken;
  }
  void use_links(const Topology& topology) override;
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
  enum class Sent : std::uint8_t { kNoRoom, kTaken, kOffered };

  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }

  Sent send(int to, const UcxPeer::Queued& message);
  void send(int to, const UcxHeader& header);
  std::array<std::byte, UcxHeader::kBytes> head_for(int to, UcxHeader header) const;
  void fetched(Peer& by, std::uint64_t sequence);
  bool is_of_peer(const std::optional<UcxHeader>& header) noexcept;
  void take(ConstBytes message);
  int take_offer(ConstBytes header, std::size_t size);
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
  void tell_awaited();

  const int rank_;
  const std::size_t max_message_bytes_;
  const std::vector<int> hosts_;
  UcxLimits limits_;
  std::uint64_t session_ = 0;
  std::atomic<std::uint64_t> refused_{0};
  std::vector<Peer> peers_;
  std::shared_ptr<AwaitedPeers> awaited_;  // null: nobody wants to know
  int idle_polls_ = 0;
  std::uint32_t vain_polls_ = 0;  // since something moved
  bool slept_ = false;            // since something moved
  bool closing_ = false;          // nothing is handed over any more

  Wake bell_;
  LossNews news_;

  UcxWorker worker_;  // calls us back until it is gone, so it goes first
};

}  // namespace motley
