// comm/transport/ucx_peer.h: what the UCX transport of one rank knows of another rank.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "comm/transport/device_messages.h"
#include "comm/transport/transport.h"
#include "comm/transport/ucx_link.h"

namespace motley {

struct UcxPeer {
  struct Queued {  // a send that found the window full
    Tag tag;
    ConstBytes data;
    Sink* sink;
    std::uint32_t cookie;
    DeviceMessage device;  // instead of `data`, if it has memory
  };
  struct Offer {  // a send that it has not fetched yet
    Sink* sink;
    std::uint32_t cookie;
  };
  struct Early {  // a message that overtook another
    Early(const Tag& tag_, ConstBytes data_) : tag(tag_), data(data_.begin(), data_.end()) {}
    Early(const Tag& tag_, DeviceMessage message) : tag(tag_), device(std::move(message)) {}
    Tag tag;
    std::vector<std::byte> data;
    DeviceMessage device;  // instead, if it has memory
  };

  bool joined = false;         // is another rank, and among those that the transport joins
  std::uint64_t seal_out = 0;  // of messages to it
  std::uint64_t seal_in = 0;   // of messages from it
  std::uint64_t session = 0;   // its
  bool greeted = false;
  bool ready = false;
  bool left = false;  // it closed its transport,
  int left_for = -1;  // for it had lost this rank, unless -1
  bool lost = false;
  UcxLinkUse use;
  std::deque<Queued> queue;
  std::map<std::uint64_t, Offer> offers;  // by number of the message
  std::set<std::uint64_t> fetching;       // numbers of messages from it
  std::uint64_t next_out = 0;             // number of the next message to it
  std::uint64_t sent_bytes = 0;           // to it
  std::uint64_t taken_bytes = 0;          // by it, as far as we know
  std::uint64_t next_in = 0;              // number of the next message from it
  std::map<std::uint64_t, Early> early;
  std::uint64_t arrived_bytes = 0;   // from it
  std::uint64_t credited_bytes = 0;  // what we last told it

  void forget(const Sink& sink) noexcept {
    std::erase_if(queue, [&](const Queued& send) { return send.sink == &sink; });
    std::erase_if(offers, [&](const auto& entry) { return entry.second.sink == &sink; });
  }
};

}  // namespace motley
