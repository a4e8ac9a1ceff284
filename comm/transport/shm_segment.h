// comm/transport/shm_segment.h: what one rank shares with all ranks of its host: an inbox, a board
// of its collectives and a heap.
//
// The memory has no name in any file system: it is reached through /proc/PID/fd/FD while its owner
// keeps the descriptor open, and goes away with the last process that maps it, however that ends.
// Layout: Head, one ring for each rank of the group (the own one is not used), board, heap. Pages
// that nobody has touched cost nothing, so the heap may be as large as the machine's memory.
#pragma once

#include <string>
#include <string_view>

#include "comm/transport/shm_board.h"
#include "comm/transport/shm_peer_memory.h"
#include "comm/transport/shm_ring.h"

namespace motley {

class ShmSegment {
 public:
  struct Plan {                     // what owner and peers agree on
    int rank = 0;                   // the owner
    int size = 1;                   // of the group
    std::size_t payload_bytes = 0;  // of a message, at most
    std::string_view token = {};    // of the job
  };

  // Makes the memory of `plan.rank`.
  static ShmSegment create(const Plan& plan, std::size_t heap_bytes = 0);
  // Maps the memory that its owner described by `address`. Throws kUnavailable if it lies on
  // another host, in another pid namespace or in another job, by its token; kMismatch if its owner
  // has other sizes.
  static ShmSegment open(const std::string& address, const Plan& plan);

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  // How others open it; valid until close_descriptor().
  const std::string& address() const noexcept { return address_; }
  // To be called when all have mapped it.
  void close_descriptor() noexcept;

  Doorbell& doorbell() const noexcept { return head_->doorbell; }
  // Messages from `rank` to the owner.
  ShmRing ring_from(int rank) const noexcept;
  // What a peer writes at its ring before its first message: nobody without the token can.
  std::uint64_t seal_of(int rank, std::string_view token) const noexcept;
  ShmBoard& board() const noexcept;
  Bytes heap() const noexcept;
  // What its owner does not share.
  ShmPeerMemory rest_of_owner() const noexcept {
    return {owner_, head_->nonce_address, head_->nonce};
  }

 private:
  struct Head {
    std::uint64_t magic;          // set last
    std::uint64_t nonce;          // tells this segment from one that reuses the descriptor
    std::uint64_t seal;           // of the owner, for this nonce
    std::uint64_t nonce_address;  // in the address space of the owner
    std::uint32_t rank;
    Doorbell doorbell;
  };

  struct Sizes {
    int ranks;
    std::size_t payload_bytes, heap_bytes;

    std::size_t board() const noexcept;  // where it starts
    std::size_t heap() const noexcept;
    std::size_t all() const noexcept { return heap() + heap_bytes; }
  };

  ShmSegment(int descriptor, const Sizes& sizes);

  Head* head_ = nullptr;
  Sizes sizes_;
  int descriptor_ = -1;
  int owner_ = -1;  // its process
  std::string address_;
};

}  // namespace motley
