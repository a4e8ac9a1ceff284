// test/support/nccl_clique.h: what the ranks of one communicator of the stand-in have asked for,
// and how it is matched and done. Under the lock of nccl_stand_in.cc.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/device.h"

namespace motley::test {

struct NcclOperation {
  enum Kind { kAllReduce, kReduceScatter, kReduce, kAllGather, kBroadcast, kSend, kRecv };
  Kind kind = kSend;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // or the root
  std::optional<double> weight = {};
  bool done = false;

  bool is_message() const noexcept { return kind >= kSend; }
};

// What one group asked for: starts when everything before it in its stream and its communicator is
// done, and is done when all its operations are.
struct NcclLaunch {
  StreamRef stream;
  std::vector<NcclOperation> operations;
  bool started = false;
  bool broken = false;

  bool done() const noexcept {
    for (const NcclOperation& operation : operations) {
      if (!operation.done) return false;
    }
    return true;
  }
};

class NcclClique {
 public:
  explicit NcclClique(int size) : seats_(static_cast<std::size_t>(size)) {}

  int size() const noexcept { return static_cast<int>(seats_.size()); }
  // Tries to go on with `launch` of `rank`; true once it is done. What is wrong is added to
  // `faults`.
  bool advance(int rank, NcclLaunch& launch, std::vector<std::string>& faults);
  // `rank` is gone: what it had under way will never be done.
  void leave(int rank);

 private:
  struct Seat {
    std::deque<NcclOperation*> collectives;           // started, not matched
    std::map<int, std::deque<NcclOperation*>> sends;  // by peer
    std::map<int, std::deque<NcclOperation*>> recvs;
    NcclLaunch* current = nullptr;  // started, not done
    bool gone = false;
  };

  Seat& seat(int rank) { return seats_[static_cast<std::size_t>(rank)]; }
  void match_collectives(std::vector<std::string>& faults);
  void match_messages(int from, int to, std::vector<std::string>& faults);
  void look_for_deadlock(std::vector<std::string>& faults);

  std::vector<Seat> seats_;
  bool stuck_ = false;  // a fault was found: nothing matches any more
};

}  // namespace motley::test
