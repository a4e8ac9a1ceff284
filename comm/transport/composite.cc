#include "comm/transport/composite.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "comm/transport/sleeper.h"

namespace motley {
namespace {

constexpr int kYields = 16;  // waits after something moved that only give way to others

// The error of a transport that numbers the ranks of `members` from 0.
Error renumbered(const Error& error, const std::vector<int>& members) {
  std::vector<int> ranks;
  for (const int rank : error.ranks()) ranks.push_back(members[static_cast<std::size_t>(rank)]);
  return Error(error.code(), error.what(), std::move(ranks));
}

class CompositeTransport final : public Transport {
 public:
  CompositeTransport(std::unique_ptr<Transport> near, std::vector<int> members,
                     std::unique_ptr<Transport> far)
      : members_(std::move(members)),
        near_rank_(static_cast<std::size_t>(far->size()), -1),
        near_(std::move(near)),
        far_(std::move(far)),
        closer_(*this),
        notices_(*this),
        sleeper_(*near_, *far_) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      near_rank_[static_cast<std::size_t>(members_[i])] = static_cast<int>(i);
    }
  }

  int rank() const noexcept override { return far_->rank(); }
  int size() const noexcept override { return far_->size(); }
  const char* name() const noexcept override { return "shm+ucx"; }
  std::size_t max_message_bytes() const noexcept override {
    return std::min(near_->max_message_bytes(), far_->max_message_bytes());
  }
  Link link() const noexcept override { return far_->link(); }
  std::vector<int> hosts() const override { return far_->hosts(); }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    const int near = near_rank(to);
    if (near < 0) return far_->post_send(to, tag, data, sink, cookie);
    Relay& relay = relay_of(sink);
    ++relay.outstanding;
    if (!near_->post_send(near, tag, data, relay, cookie)) return false;
    finish(relay);
    return true;
  }
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    const int near = near_rank(from);
    if (near < 0) return far_->post_recv(from, tag, sink, cookie);
    Relay& relay = relay_of(sink);
    ++relay.outstanding;
    near_->post_recv(near, tag, relay, cookie);
  }

  bool poll() override {
    const bool near_moved = near_->poll();
    const bool moved = far_->poll() || near_moved;
    if (moved) idle_polls_ = 0;
    return moved;
  }
  void wait(TimePoint until) override;
  void wake() noexcept override { far_->wake(); }  // where wait() sleeps

  void cancel(Sink& sink, const CallId& call) noexcept override {
    far_->cancel(sink, call);
    const auto found = relays_.find(&sink);
    if (found == relays_.end()) return near_->cancel(closer_, call);
    Relay& relay = *found->second;
    near_->cancel(relay, call);
    relay.is_open = false;
    relay.outstanding = 1;
    finish(relay);
  }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    far_->open(sink, call, fingerprint);
    Relay& relay = relay_of(sink);
    relay.call = call;
    relay.is_open = true;
    near_->open(relay, call, fingerprint);
  }
  void close(const CallId& call) noexcept override {
    far_->close(call);
    near_->close(call);
    const auto found = std::find_if(relays_.begin(), relays_.end(), [&](const auto& it) {
      return it.second->is_open && it.second->call == call;
    });
    if (found == relays_.end()) return;
    Relay& relay = *found->second;
    relay.is_open = false;
    ++relay.outstanding;
    finish(relay);
  }
  void listen(Sink& notices) noexcept override {
    far_->listen(notices);
    notices_.sink = &notices;
    near_->listen(notices_);
  }
  void retire_before(const GroupTag& tag) noexcept override {
    near_->retire_before(tag);
    far_->retire_before(tag);
  }
  std::uint64_t refused() const noexcept override { return near_->refused() + far_->refused(); }
  void report_lost(int peer, const std::string& why) noexcept override {
    if (peer < 0 || peer >= size()) return;
    const int near = near_rank(peer);
    if (near >= 0) near_->report_lost(near, why);
    far_->report_lost(peer, why);  // in either case, to name it as the cause when we leave
  }

 private:
  // Stands for a sink on the near side, where ranks have other numbers, while it has operations
  // there or runs a call.
  struct Relay final : Sink {
    explicit Relay(CompositeTransport& owner_) : owner(owner_) {}
    void sent(std::uint32_t cookie) override { owner.finish(*this).sent(cookie); }
    void received(std::uint32_t cookie, const Tag& tag, ConstBytes data) override {
      owner.finish(*this).received(cookie, tag, data);
    }
    void failed(std::uint32_t cookie, const Error& error) override {
      const std::vector<int>& members = owner.members_;
      owner.finish(*this).failed(cookie, renumbered(error, members));
    }
    void disagreed(int from, const Tag& theirs, const Fingerprint& ours) override {
      sink->disagreed(owner.far_rank(from), theirs, ours);
    }
    CompositeTransport& owner;
    Sink* sink = nullptr;
    std::size_t outstanding = 0;
    bool is_open = false;
    CallId call;  // if open
  };
  // Passes notices on, whose cookies are ranks.
  struct Notices final : Sink {
    explicit Notices(CompositeTransport& owner_) : owner(owner_) {}
    void sent(std::uint32_t cookie) override { sink->sent(cookie); }
    void received(std::uint32_t from, const Tag& tag, ConstBytes data) override {
      const int rank = owner.far_rank(static_cast<int>(from));
      sink->received(static_cast<std::uint32_t>(rank), tag, data);
    }
    void failed(std::uint32_t cookie, const Error& error) override {
      sink->failed(cookie, renumbered(error, owner.members_));
    }
    void disagreed(int from, const Tag& theirs, const Fingerprint& ours) override {
      sink->disagreed(owner.far_rank(from), theirs, ours);
    }
    CompositeTransport& owner;
    Sink* sink = nullptr;
  };

  int far_rank(int near) const noexcept { return members_[static_cast<std::size_t>(near)]; }
  int near_rank(int rank) const noexcept { return near_rank_[static_cast<std::size_t>(rank)]; }

  Relay& relay_of(Sink& sink) {
    Relay*& relay = relays_[&sink];
    if (relay != nullptr) return *relay;
    if (spare_.empty()) {
      all_.push_back(std::make_unique<Relay>(*this));
      spare_.reserve(all_.size());  // so that finish() does not allocate
      spare_.push_back(all_.back().get());
    }
    relay = spare_.back();
    spare_.pop_back();
    relay->sink = &sink;
    return *relay;
  }
  // One operation of `relay` is over. Returns whom it stands for.
  Sink& finish(Relay& relay) noexcept {
    Sink& sink = *relay.sink;
    if (--relay.outstanding == 0 && !relay.is_open) {
      relays_.erase(&sink);
      spare_.push_back(&relay);
    }
    return sink;
  }

  const std::vector<int> members_;
  std::vector<int> near_rank_;  // by rank; -1: on another host
  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
  Relay closer_;  // has no operations: closes calls on the near side
  Notices notices_;
  std::vector<std::unique_ptr<Relay>> all_;
  std::vector<Relay*> spare_;
  std::unordered_map<Sink*, Relay*> relays_;  // of sinks that are known on the near side
  int idle_polls_ = 0;
  Sleeper sleeper_;
};

// One thread can sleep for one transport only, so another sleeps for the near side.
void CompositeTransport::wait(TimePoint until) {
  if (idle_polls_ < kYields) {
    ++idle_polls_;
    sched_yield();
    return;
  }
  sleeper_.begin(until);
  far_->sleep(until);
  sleeper_.end();
}

}  // namespace

std::unique_ptr<Transport> combine(std::unique_ptr<Transport> near, std::vector<int> members,
                                   std::unique_ptr<Transport> far) {
  return std::make_unique<CompositeTransport>(std::move(near), std::move(members), std::move(far));
}

std::unique_ptr<Transport> make_composite_transport(const TransportSetup& setup) {
  const std::vector<int>& host_of = setup.hosts;
  const int here = host_of[static_cast<std::size_t>(setup.rank)];
  std::vector<int> local, remote;
  for (int rank = 0; rank < setup.size; ++rank) {
    const bool same = host_of[static_cast<std::size_t>(rank)] == here;
    if (same) local.push_back(rank);
    if (!same || rank == setup.rank) remote.push_back(rank);
  }
  if (local.size() == 1) return make_ucx_transport(setup);
  TransportSetup near = setup;
  near.rank =
      static_cast<int>(std::lower_bound(local.begin(), local.end(), setup.rank) - local.begin());
  near.size = static_cast<int>(local.size());
  near.name = fmt::format("{}/host/{}", setup.name, here);
  std::unique_ptr<Transport> shm;
  try {
    shm = make_shm_transport(near);
  } catch (const Error& error) {
    throw renumbered(error, local);
  }
  TransportSetup far = setup;
  far.members = std::move(remote);
  return combine(std::move(shm), std::move(local), make_ucx_transport(far));
}

}  // namespace motley
