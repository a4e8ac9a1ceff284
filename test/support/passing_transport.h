// test/support/passing_transport.h: a transport that passes everything on to another one: for tests
// that change or look at some of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/topology.h"
#include "comm/transport/transport.h"

namespace motley::test {

class PassingTransport : public Transport {
 public:
  explicit PassingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const noexcept override { return inner_->rank(); }
  int size() const noexcept override { return inner_->size(); }
  const char* name() const noexcept override { return inner_->name(); }
  std::size_t max_message_bytes() const noexcept override { return inner_->max_message_bytes(); }
  Link link() const noexcept override { return inner_->link(); }
  std::vector<int> hosts() const override { return inner_->hosts(); }
  int cores() const noexcept override { return inner_->cores(); }
  void use_links(const Topology& topology) override { inner_->use_links(topology); }
  Team* team() noexcept override { return inner_->team(); }
  Team* team_of(const Group& group) noexcept override { return inner_->team_of(group); }
  DeviceMessages* device_messages() noexcept override { return inner_->device_messages(); }
  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    return inner_->post_send(to, tag, data, sink, cookie);
  }
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    inner_->post_recv(from, tag, sink, cookie);
  }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    inner_->open(sink, call, fingerprint);
  }
  void close(const CallId& call) noexcept override { inner_->close(call); }
  void listen(Sink& notices) noexcept override { inner_->listen(notices); }
  bool poll() override { return inner_->poll(); }
  void wait(TimePoint until) override { inner_->wait(until); }
  void sleep(TimePoint until) override { inner_->sleep(until); }
  void wake() noexcept override { inner_->wake(); }
  void cancel(Sink& sink, const CallId& call) noexcept override { inner_->cancel(sink, call); }
  void retire_before(const GroupTag& tag) noexcept override { inner_->retire_before(tag); }
  std::uint64_t refused() const noexcept override { return inner_->refused(); }
  void report_lost(int peer, const std::string& why) noexcept override {
    inner_->report_lost(peer, why);
  }

 private:
  std::unique_ptr<Transport> inner_;
};

}  // namespace motley::test
