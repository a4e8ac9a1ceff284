#include "comm/transport/inproc.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "comm/transport/matched_transport.h"

namespace motley {

struct InprocNetwork::Mailbox {
  struct Message {
    int from;
    Tag tag;
    std::vector<std::byte> data;
  };
  explicit Mailbox(std::size_t size) : queued_bytes(size), sender_waits(size) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Message> messages;
  std::vector<std::vector<std::byte>> spare;  // buffers to use again
  std::vector<std::size_t> queued_bytes;      // by sender
  std::vector<char> sender_waits;             // by sender: wake it when there is room
  std::vector<std::pair<int, std::string>> lost;
  bool woken = false;

  void wake() {
    {
      const std::lock_guard lock(mutex);
      woken = true;
    }
    changed.notify_one();
  }
};

class InprocNetwork::Seat : public MatchedTransport {
 public:
  Seat(InprocNetwork& network, int rank) : network_(network), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return static_cast<int>(network_.mailboxes_.size()); }
  const char* name() const noexcept override { return "inproc"; }
  std::size_t max_message_bytes() const noexcept override { return 1 << 20; }
  Link link() const noexcept override { return TopologyCosts{}.within; }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    if (matcher_.lost(to) != nullptr || blocked_to(to) || !try_send(to, tag, data)) {
      blocked_.push_back({to, tag, data, &sink, cookie});
      return false;
    }
    return true;
  }

  bool poll() override {
    bool moved = take_mail();
    moved |= retry_sends();
    moved |= matcher_.deliver();
    return moved;
  }

  void wait(TimePoint until) override {
    const auto doomed = [&](const Blocked& send) { return matcher_.lost(send.to) != nullptr; };
    if (std::any_of(blocked_.begin(), blocked_.end(), doomed)) return;
    Mailbox& box = mailbox(rank_);
    std::unique_lock lock(box.mutex);
    const auto news = [&] { return box.woken || !box.messages.empty(); };
    if (until == TimePoint::max()) {
      box.changed.wait(lock, news);
    } else {
      box.changed.wait_until(lock, until, news);
    }
    box.woken = false;
  }

  void wake() noexcept override { mailbox(rank_).wake(); }

  void cancel(Sink& sink, const CallId& call) noexcept override {
    std::erase_if(blocked_, [&](const Blocked& send) { return send.sink == &sink; });
    matcher_.cancel(sink, call);
  }

  void report_lost(int peer, const std::string& why) noexcept override {
    Mailbox& box = mailbox(rank_);
    {
      const std::lock_guard lock(box.mutex);
      box.lost.emplace_back(peer, why);
      box.woken = true;
    }
    box.changed.notify_one();
  }

 private:
  struct Blocked {
    int to;
    Tag tag;
    ConstBytes data;
    Sink* sink;
    std::uint32_t cookie;
  };

  Mailbox& mailbox(int rank) { return *network_.mailboxes_[static_cast<std::size_t>(rank)]; }

  bool blocked_to(int to) const {
    for (const Blocked& send : blocked_) {
      if (send.to == to) return true;
    }
    return false;
  }

  bool try_send(int to, const Tag& tag, ConstBytes data) {
    Mailbox& box = mailbox(to);
    {
      const std::lock_guard lock(box.mutex);
      std::size_t& queued = box.queued_bytes[static_cast<std::size_t>(rank_)];
      if (queued != 0 && queued + data.size() > kMailboxBytes) {
        box.sender_waits[static_cast<std::size_t>(rank_)] = 1;
        return false;
      }
      std::vector<std::byte> copy;
      if (!box.spare.empty()) {
        copy = std::move(box.spare.back());
        box.spare.pop_back();
      }
      copy.assign(data.begin(), data.end());
      queued += data.size();
      box.messages.push_back({rank_, tag, std::move(copy)});
    }
    box.changed.notify_one();
    return true;
  }

  bool take_mail() {
    Mailbox& box = mailbox(rank_);
    std::vector<int> to_wake;
    {
      const std::lock_guard lock(box.mutex);
      std::swap(mail_, box.messages);
      std::swap(lost_, box.lost);
      for (const Mailbox::Message& message : mail_) {
        const auto from = static_cast<std::size_t>(message.from);
        box.queued_bytes[from] -= message.data.size();
        if (std::exchange(box.sender_waits[from], 0)) to_wake.push_back(message.from);
      }
    }
    for (const int rank : to_wake) mailbox(rank).wake();
    const bool moved = !mail_.empty() || !lost_.empty();
    for (const Mailbox::Message& message : mail_) {
      matcher_.arrived(message.from, message.tag, message.data);
    }
    for (const auto& [peer, why] : lost_) matcher_.fail_peer(peer, why);
    lost_.clear();
    give_back_buffers(box);
    return moved;
  }

  void give_back_buffers(Mailbox& box) {
    if (mail_.empty()) return;
    const std::lock_guard lock(box.mutex);
    for (Mailbox::Message& message : mail_) box.spare.push_back(std::move(message.data));
    mail_.clear();
  }

  bool retry_sends() {
    std::vector<int> full;  // receivers that have no room: later sends to them keep their turn
    bool moved = false;
    for (std::size_t i = 0; i < blocked_.size();) {
      const Blocked send = blocked_[i];
      const bool wait = std::find(full.begin(), full.end(), send.to) != full.end();
      const Error* const loss = matcher_.lost(send.to);
      if (loss == nullptr && (wait || !try_send(send.to, send.tag, send.data))) {
        full.push_back(send.to);
        ++i;
        continue;
      }
      blocked_.erase(blocked_.begin() + static_cast<std::ptrdiff_t>(i));
      moved = true;
      if (loss != nullptr) {
        send.sink->failed(send.cookie, *loss);
      } else {
        send.sink->sent(send.cookie);
      }
    }
    return moved;
  }

  InprocNetwork& network_;
  int rank_;
  std::deque<Blocked> blocked_;
  std::vector<Mailbox::Message> mail_;
  std::vector<std::pair<int, std::string>> lost_;
};

InprocNetwork::InprocNetwork(int size) {
  const auto n = static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < n; ++i) mailboxes_.push_back(std::make_unique<Mailbox>(n));
}

InprocNetwork::~InprocNetwork() = default;

std::unique_ptr<Transport> InprocNetwork::transport(int rank) {
  return std::make_unique<Seat>(*this, rank);
}

std::unique_ptr<Transport> InprocNetwork::single() {
  struct Owned {
    InprocNetwork network{1};
  };
  struct Single final : Owned, Seat {
    Single() : Seat(network, 0) {}
  };
  return std::make_unique<Single>();
}

}  // namespace motley
