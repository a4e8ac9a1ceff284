// comm/transport/shm_peer_memory.h: reads what another process of this host does not share.
//
// process_vm_readv() copies from the address space of another process, without its help. A kernel
// may refuse that (seccomp, yama, another user or name space); which shows in trying.
#pragma once

#include <cstddef>
#include <cstdint>

namespace motley {

class ShmPeerMemory {
 public:
  ShmPeerMemory() = default;
  // Of the process that has `word` at `address`. The word is looked at with every read: the process
  // may have ended, and another one have its id.
  ShmPeerMemory(int pid, std::uint64_t address, std::uint64_t word) noexcept
      : pid_(pid), address_(address), word_(word) {}

  // Copies `bytes` bytes from `from`, an address of that process. 0, or why not as an errno: ESRCH
  // where it is gone, EFAULT where it has nothing there. Part may have been copied then.
  int read(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept;
  bool can_be_read() const noexcept { return read(nullptr, 0, 0) == 0; }
  // Whether it has memory from `from` on that may be read so, as its first and last byte show: what
  // a device has mapped may not.
  bool can_be_read(std::uint64_t from, std::size_t bytes) const noexcept {
    std::byte byte;
    return read(&byte, from, 1) == 0 && read(&byte, from + bytes - 1, 1) == 0;
  }

 private:
  int pid_ = -1;
  std::uint64_t address_ = 0;
  std::uint64_t word_ = 0;
};

}  // namespace motley
