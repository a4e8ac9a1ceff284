#include "wide/read/pieces.h"

#include <algorithm>
#include <cstring>

#include "wide/read/rows.h"

namespace motley::wide {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 18;  // it, and its rows, fit into a cache

}  // namespace

std::string_view Pieces::next(std::string& buffer) {
  std::size_t filled = rest_.size();
  std::size_t wanted = filled + kPieceBytes;
  if (buffer.size() < wanted + 1 + kPadding) buffer.resize(wanted + 1 + kPadding);
  std::memcpy(buffer.data(), rest_.data(), filled);
  rest_.clear();
  for (;;) {
    while (filled < wanted && !ended_) {
      const std::size_t got = input_.read_some(buffer.data() + filled, wanted - filled);
      ended_ = got == 0;
      filled += got;
    }
    if (filled == 0) return {};
    if (ended_) {
      if (buffer[filled - 1] != '\n') buffer[filled++] = '\n';
      return {buffer.data(), filled};
    }
    const void* const last = memrchr(buffer.data(), '\n', filled);
    if (last != nullptr) {
      const auto size =
          static_cast<std::size_t>(static_cast<const char*>(last) - buffer.data()) + 1;
      rest_.assign(buffer.data() + size, filled - size);
      return {buffer.data(), size};
    }
    wanted = 2 * filled;  // a line longer than a piece
    buffer.resize(wanted + 1 + kPadding);
  }
}

}  // namespace motley::wide
