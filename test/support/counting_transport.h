// test/support/counting_transport.h: a transport that counts the messages that its rank sends.
#pragma once

#include <map>

#include "test/support/passing_transport.h"

namespace motley::test {

class CountingTransport final : public PassingTransport {
 public:
  using PassingTransport::PassingTransport;

  // Data of calls so far, by receiver. For the thread that makes progress.
  const std::map<int, int>& sent() const noexcept { return sent_; }
  void forget() noexcept { sent_.clear(); }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    if (tag.piece != Tag::kNotice && tag.piece != Tag::kQuestion) ++sent_[to];
    return PassingTransport::post_send(to, tag, data, sink, cookie);
  }

 private:
  std::map<int, int> sent_;
};

}  // namespace motley::test
