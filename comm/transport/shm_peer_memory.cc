#include "comm/transport/shm_peer_memory.h"

#include <sys/uio.h>

#include <cerrno>
#include <utility>

namespace motley {

int ShmPeerMemory::read(std::byte* to, std::uint64_t from, std::size_t bytes) const noexcept {
  const int kept = errno;
  std::size_t done = 0;
  do {
    std::uint64_t word = 0;
    const iovec here[] = {{&word, sizeof(word)}, {to + done, bytes - done}};
    const iovec there[] = {{reinterpret_cast<void*>(address_), sizeof(word)},
                           {reinterpret_cast<void*>(from + done), bytes - done}};
    const unsigned long parts = done == bytes ? 1 : 2;
    const ssize_t got = process_vm_readv(pid_, here, parts, there, parts, 0);
    if (got < 0) return std::exchange(errno, kept);
    if (got < static_cast<ssize_t>(sizeof(word)) || word != word_) return ESRCH;
    if (got == sizeof(word) && done < bytes) return EFAULT;
    done += static_cast<std::size_t>(got) - sizeof(word);
  } while (done < bytes);
  return 0;
}

}  // namespace motley
