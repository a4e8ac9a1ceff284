// test/support/counting_transport.h: a transport that counts the messages, and their bytes, that
// its rank sends.
#pragma once

#include <cstddef>
#include <map>

#include "test/support/passing_transport.h"

namespace motley::test {

class CountingTransport final : public PassingTransport {
 public:
  using PassingTransport::PassingTransport;

  // Data of calls so far, by receiver. For the thread that makes progress.
  const std::map<int, int>& sent() const noexcept { return sent_; }
  std::size_t sent_bytes() const noexcept { return sent_bytes_; }
  void forget() noexcept {
    sent_.clear();
    sent_bytes_ = 0;
  }

  bool post_send(int to, const Tag& tag, ConstBytes data, Sink& sink,
                 std::uint32_t cookie) override {
    if (tag.piece != Tag::kNotice && tag.piece != Tag::kQuestion) {
      ++sent_[to];
      sent_bytes_ += data.size();
    }
    return PassingTransport::post_send(to, tag, data, sink, cookie);
  }

 private:
  std::map<int, int> sent_;
  std::size_t sent_bytes_ = 0;
};

}  // namespace motley::test
