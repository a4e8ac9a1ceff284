// comm/transport/shm_segment.h: one rank's inbox, memory that all ranks of a host map.
//
// The memory has no name in any file system: it is reached through /proc/PID/fd/FD while its owner
// keeps the descriptor open, and goes away with the last process that maps it, however that ends.
// Layout: Head, then one ring for each rank of the group (the own one is not used). Pages that no
// message has touched cost nothing.
#pragma once

#include <string>

#include "comm/transport/shm_ring.h"

namespace motley {

class ShmSegment {
 public:
  // Makes the inbox of `rank`, for messages of at most `payload_bytes`.
  static ShmSegment create(int rank, int size, std::size_t payload_bytes);
  // Maps the inbox of `rank` that its owner described by `address`; the same size and payload.
  // Throws kUnavailable if it lies on another host or in another pid namespace, kMismatch if its
  // owner has other sizes.
  static ShmSegment open(const std::string& address, int rank, int size, std::size_t payload_bytes);

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

 private:
  struct Head {
    std::uint64_t magic;  // set last
    std::uint64_t nonce;  // tells this segment from one that reuses the descriptor
    std::uint64_t payload_bytes;
    std::uint32_t rank;
    std::uint32_t size;
    Doorbell doorbell;
  };

  ShmSegment(int descriptor, std::size_t bytes, std::size_t payload_bytes);

  Head* head_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  int descriptor_ = -1;
  std::string address_;
};

}  // namespace motley
