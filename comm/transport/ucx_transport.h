// comm/transport/ucx_transport.h: ranks on any hosts talk through UCX: active messages that carry
// their whole header. ucx.cc moves messages, ucx_connect.cc begins and ends.
//
// Sends are copied, so UCX never reads a caller's memory later, and what is fetched by rendezvous
// lands in memory of ours first. Each sender keeps at most a window of bytes on the way to a
// receiver (ucx_link.h): the receiver says how many it has taken, and counts what it keeps beyond
// kKeptBytes as not taken. Messages are numbered, as UCX does not promise that a large one is not
// overtaken by a small one.
//
// Where every rank's UCX knows device memory, messages there go by rendezvous from slots of ours
// into slots of ours, on the device that was current where the rank joined.
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

class UcxTransport final : public MatchedTransport, private DeviceMessages {
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
    return send_or_queue(to, {tag, data, &sink, cookie, {}});
  }
  DeviceMessages* device_messages() noexcept override { return direct_ ? this : nullptr; }
  int device() const noexcept override { return direct_->device; }
  DeviceMessage take(std::size_t size) override {
    return {direct_->slots.take(direct_->limit, size), size};
  }
  bool post_send(int to, const Tag& tag, DeviceMessage message, Sink& sink,
                 std::uint32_t cookie) override {
    assert(peer(to).joined && message.size <= max_message_bytes_);
    return send_or_queue(to, {tag, {}, &sink, cookie, std::move(message)});
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

  // Memory of messages on a device.
  struct Direct {
    Direct(int device_, std::size_t limit_) : device(device_), limit(limit_) {}
    int device;
    std::size_t limit;  // of bytes that are kept for the next ones
    Slots slots{Memory::kDevice};
  };

  Peer& peer(int rank) noexcept { return peers_[static_cast<std::size_t>(rank)]; }

  bool send_or_queue(int to, UcxPeer::Queued message) {
    Peer& receiver = peer(to);
    const bool may_go = !receiver.lost && receiver.queue.empty();
    const Sent sent = may_go ? send(to, message) : Sent::kNoRoom;
    if (sent == Sent::kNoRoom) receiver.queue.push_back(std::move(message));
    return sent == Sent::kTaken;
  }
  // Takes the memory of the message where it is the device's, unless there is no room.
  Sent send(int to, UcxPeer::Queued& message);
  void send(int to, const UcxHeader& header);
  std::array<std::byte, UcxHeader::kBytes> head_for(int to, UcxHeader header) const;
  void fetched(Peer& by, std::uint64_t sequence);
  bool is_of_peer(const std::optional<UcxHeader>& header) noexcept;
  void take(ConstBytes message);
  UcxWorker::Fetch take_offer(ConstBytes header, std::size_t size);
  void take_fetched(ConstBytes header, DeviceMessage message);
  void answer_fetched(const UcxHeader& header);
  template <class Data>
  void take_data(const UcxHeader& header, Data data);
  template <class Data>
  void arrived(int from, const Tag& tag, Data data);
  static std::size_t size_of(ConstBytes data) noexcept { return data.size(); }
  static std::size_t size_of(const DeviceMessage& message) noexcept { return message.size; }
  bool awaits_device() const;
  void begin_direct(const TransportSetup& setup);
  char device_word(const Options& options) const noexcept;
  void settle_direct(const std::vector<std::string>& addresses);
  bool take_news();
  void lose(int lost, const std::string& why);
  std::uint64_t first_culprit() const noexcept;
  void say_goodbye() noexcept;
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
  std::optional<Direct> direct_;  // before whatever holds its slots
  std::vector<Peer> peers_;
  std::shared_ptr<AwaitedPeers> awaited_;  // null: nobody wants to know
  int idle_polls_ = 0;
  std::uint32_t vain_polls_ = 0;  // since something moved
  bool slept_ = false;            // since something moved
  bool connected_ = false;        // with all that it joins
  bool closing_ = false;          // nothing is handed over any more

  Wake bell_;
  LossNews news_;

  UcxWorker worker_;  // calls us back until it is gone, so it goes first
};

}  // namespace motley
