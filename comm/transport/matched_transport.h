// comm/transport/matched_transport.h: what transports that own a Matcher have in common.
#pragma once

#include "comm/transport/matcher.h"
#include "comm/transport/transport.h"

namespace motley {

class MatchedTransport : public Transport {
 public:
  void post_recv(int from, const Tag& tag, Sink& sink, std::uint32_t cookie) override {
    matcher_.post(from, tag, sink, cookie);
  }
  void open(Sink& sink, const CallId& call, const Fingerprint& fingerprint) override {
    matcher_.open(sink, call, fingerprint);
  }
  void close(const CallId& call) noexcept override { matcher_.close(call); }
  void listen(Sink& notices) noexcept override { matcher_.listen(notices); }
  void retire_before(const GroupTag& tag) noexcept override { matcher_.retire_before(tag); }

 protected:
  Matcher matcher_;
};

}  // namespace motley
