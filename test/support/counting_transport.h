// test/support/counting_transport.h: a transport that counts the messages that its rank sends.
#pragma once

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/topology.h"
#include "comm/transport/transport.h"

namespace motley::test {

class CountingTransport final : public Transport {
 public:
  explicit CountingTransport(std::unique_ptr<Transport> counted) : counted_(std::move(counted)) {}

  // Data of calls so far, by receiver. For the thread that makes progress.
  const std::map<int, int>& sent() const noexcept { return sent_; }
  void forget() noexcept { sent_.clear(); }

  int rank() const noexcept override { return counted_->rank(); }
  int size() const noexcept override { return counted_->size(); }
  const char* name() const noexcept override { return counted_->name(); }
  std::size_t max_message_bytes() const noexcept override { return counted_->max_message_bytes(); }
  Link link() const noexcept override { return counted_->link(); }
  std::vector<int> hosts() const override { return counted_->hosts(); }
  int cores() const noexcept override { return counted_->cores(); }
  void use_links(const Topology& topology) override { counted_->use_links(topology); }
  Team* team() noexcept override { return counted_->team(); }
  Team* team_of(const Group& group) noexcept override { return counted_->team_of(group); }
  DeviceMessages* device_messages() noexcept override { return counted_->device_messages(); }
  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    if (tag.piece != Tag::kNotice && tag.piece != Tag::kQuestion) ++sent_[to];
    return counted_->post_send(to, tag, data, sink, cookie);
  }
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    counted_->post_recv(from, tag, sink, cookie);
  }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    counted_->open(sink, call, fingerprint);
  }
  void close(const CallId& call) noexcept override { counted_->close(call); }
  void listen(Sink& notices) noexcept override { counted_->listen(notices); }
  bool poll() override { return counted_->poll(); }
  void wait(TimePoint until) override { counted_->wait(until); }
  void sleep(TimePoint until) override { counted_->sleep(until); }
  void wake() noexcept override { counted_->wake(); }
  void cancel(Sink& sink, const CallId& call) noexcept override { counted_->cancel(sink, call); }
  void retire_before(const GroupTag& tag) noexcept override { counted_->retire_before(tag); }
  std::uint64_t refused() const noexcept override { return counted_->refused(); }
  void report_lost(int peer, const std::string& why) noexcept override {
    counted_->report_lost(peer, why);
  }

 private:
  std::unique_ptr<Transport> counted_;
  std::map<int, int> sent_;
};

}  // namespace motley::test
