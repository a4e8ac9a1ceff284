#include "comm/transport/composite.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "comm/transport/sleeper.h"

namespace motley {
namespace {

constexpr int kYields = 16;  // waits after something moved that only give way to others

class CompositeTransport final : public Transport {
 public:
  // `near` joins `members`, `far` the rest.
  CompositeTransport(std::unique_ptr<Transport> near, const std::vector<int>& members,
                     std::unique_ptr<Transport> far)
      : is_near_(static_cast<std::size_t>(far->size())),
        near_(std::move(near)),
        far_(std::move(far)),
        sleeper_(*near_, *far_) {
    for (const int rank : members) is_near_[static_cast<std::size_t>(rank)] = 1;
  }

  int rank() const noexcept override { return far_->rank(); }
  int size() const noexcept override { return far_->size(); }
  const char* name() const noexcept override { return "shm+ucx"; }
  std::size_t max_message_bytes() const noexcept override {
    return std::min(near_->max_message_bytes(), far_->max_message_bytes());
  }
  Link link() const noexcept override { return far_->link(); }
  std::vector<int> hosts() const override { return far_->hosts(); }
  void use_links(const Topology& topology) override { far_->use_links(topology); }
  Team* team() noexcept override { return near_->team(); }
  Team* team_of(const Group& group) noexcept override {
    const auto here = [this](int rank) { return is_near(rank); };
    return std::all_of(group.ranks().begin(), group.ranks().end(), here) ? team() : nullptr;
  }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    return way_to(to).post_send(to, tag, data, sink, cookie);
  }
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    way_to(from).post_recv(from, tag, sink, cookie);
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
    near_->cancel(sink, call);
    far_->cancel(sink, call);
  }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    idle_polls_ = 0;  // a new call: something is likely to move soon
    near_->open(sink, call, fingerprint);
    far_->open(sink, call, fingerprint);
  }
  void close(const CallId& call) noexcept override {
    near_->close(call);
    far_->close(call);
  }
  void listen(Sink& notices) noexcept override {
    near_->listen(notices);
    far_->listen(notices);
  }
  void retire_before(const GroupTag& tag) noexcept override {
    near_->retire_before(tag);
    far_->retire_before(tag);
  }
  std::uint64_t refused() const noexcept override { return near_->refused() + far_->refused(); }
  void report_lost(int peer, const std::string& why) noexcept override {
    if (peer < 0 || peer >= size()) return;
    if (is_near(peer)) near_->report_lost(peer, why);
    far_->report_lost(peer, why);  // in either case, to name it as the cause when we leave
  }

 private:
  bool is_near(int rank) const noexcept { return is_near_[static_cast<std::size_t>(rank)] != 0; }
  Transport& way_to(int rank) const noexcept { return is_near(rank) ? *near_ : *far_; }

  std::vector<char> is_near_;  // by rank
  std::unique_ptr<Transport> near_;
  std::unique_ptr<Transport> far_;
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

std::unique_ptr<Transport> make_composite_transport(const TransportSetup& setup) {
  const std::vector<int>& host_of = setup.hosts;
  const int here = host_of[static_cast<std::size_t>(setup.rank)];
  TransportSetup near = setup, far = setup;
  for (int rank = 0; rank < setup.size; ++rank) {
    const bool same = host_of[static_cast<std::size_t>(rank)] == here;
    if (same) near.members.push_back(rank);
    if (!same || rank == setup.rank) far.members.push_back(rank);
  }
  if (near.members.size() == 1) return make_ucx_transport(setup);
  near.name = fmt::format("{}/host/{}", setup.name, here);
  auto shm = make_shm_transport(near);
  return std::make_unique<CompositeTransport>(std::move(shm), near.members,
                                              make_ucx_transport(far));
}

}  // namespace motley
