#include "wide/read/pieces.h"

#include <algorithm>
#include <cstring>

#include "wide/read/rows.h"

namespace motley::wide {

std::string_view Pieces::next(std::string& buffer) {
  return position_ < end_ ? within(read(buffer)) : std::string_view();
}

std::string_view Pieces::again(std::string& buffer) {
  input_.seek(0);
  rest_.clear();
  ended_ = false;
  position_ = 0;
  return next(buffer);
}

std::string_view Pieces::within(std::string_view last) const {
  if (position_ <= end_) return last;
  const std::uint64_t begin = position_ - last.size();
  return begin < end_ ? last.substr(0, last.find('\n', end_ - 1 - begin) + 1) : last.substr(0, 0);
}

std::string_view Pieces::narrow(std::string_view last, const ByteRange& range,
                                std::string& buffer) {
  end_ = range.end;
  if (range.begin <= position_ - last.size()) return within(last);
  // The line that the byte before belongs to has begun before, unless it ends there.
  if (range.begin > position_) {
    input_.seek(range.begin - 1);
    rest_.clear();
    position_ = range.begin - 1;
    last = read(buffer);
    if (last.empty()) return last;
  }
  const std::uint64_t begin = position_ - last.size();
  last.remove_prefix(last.find('\n', range.begin - 1 - begin) + 1);
  return last.empty() ? next(buffer) : within(last);
}

std::string_view Pieces::read(std::string& buffer) {
  std::size_t filled = rest_.size();
  std::size_t wanted = filled + kBytes;
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
      position_ += filled;
      return {buffer.data(), filled};
    }
    const void* const last = memrchr(buffer.data(), '\n', filled);
    if (last != nullptr) {
      const auto size =
          static_cast<std::size_t>(static_cast<const char*>(last) - buffer.data()) + 1;
      rest_.assign(buffer.data() + size, filled - size);
      position_ += size;
      return {buffer.data(), size};
    }
    wanted = 2 * filled;  // a line longer than a piece
    buffer.resize(wanted + 1 + kPadding);
  }
}

}  // namespace motley::wide
