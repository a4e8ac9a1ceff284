#include "comm/shared_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "comm/error.h"

namespace motley {
namespace {

class Pages final : public SharedBuffer::Owner {
 public:
  void give_back(std::byte* data, std::size_t bytes) noexcept override { munmap(data, bytes); }
};

}  // namespace

SharedBuffer SharedBuffer::of_own_memory(std::size_t bytes) {
  if (bytes == 0) return {};
  void* const data =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw_errno(fmt::format("allocate {} bytes", bytes));
  madvise(data, bytes, MADV_HUGEPAGE);  // fewer faults where the host allows it; else no matter
  return {static_cast<std::byte*>(data), bytes, std::make_shared<Pages>()};
}

}  // namespace motley
