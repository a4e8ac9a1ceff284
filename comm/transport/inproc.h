// comm/transport/inproc.h: ranks are threads of one process.
//
// A message is copied into a mailbox of the receiver, at most kMailboxBytes per pair of ranks,
// after which sends wait for room. For tests, examples, and several devices in one process.
#pragma once

#include <memory>
#include <vector>

#include "comm/transport/transport.h"

namespace motley {

class InprocNetwork {
 public:
  static constexpr std::size_t kMailboxBytes = 4 << 20;

  explicit InprocNetwork(int size);
  ~InprocNetwork();

  // The seat of `rank`, once. The network must outlive it.
  std::unique_ptr<Transport> transport(int rank);
  // The only seat of a network of one, which it owns.
  static std::unique_ptr<Transport> single();

 private:
  struct Mailbox;
  class Seat;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
};

}  // namespace motley
