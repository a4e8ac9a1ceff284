#include "test/support/copy_order.h"

#include <fmt/format.h>

#include <functional>

#include "comm/error.h"

namespace motley::test {
namespace {

bool meet(const std::byte* a, std::size_t a_bytes, const std::byte* b, std::size_t b_bytes) {
  constexpr std::less<> below;
  return below(a, b + b_bytes) && below(b, a + a_bytes);
}

// Two may read the same bytes.
bool conflict(const CopyOrder::Copy& a, const CopyOrder::Copy& b) {
  return meet(a.to, a.bytes, b.to, b.bytes) || meet(a.to, a.bytes, b.from, b.bytes) ||
         meet(a.from, a.bytes, b.to, b.bytes);
}

std::string text(const CopyOrder::Copy& copy) {
  return fmt::format("{} bytes from {} to {}", copy.bytes, static_cast<const void*>(copy.from),
                     static_cast<const void*>(copy.to));
}

}  // namespace

void CopyOrder::copy(const Place& place, const Copy& copy) {
  Reached reached;
  reach(place, reached);
  for (const auto& [stream, pieces] : open_) {
    if (stream == place.stream) continue;
    for (const Piece& piece : pieces) {
      if (!piece.copy || piece.position <= reached[stream] || !conflict(*piece.copy, copy))
        continue;
      throw Error(ErrorCode::kIo,
                  fmt::format("emulated devices: a copy of {} and an earlier one, in another "
                              "stream, of {} touch the same memory, and nothing orders them: let "
                              "an event behind the earlier one hold the stream of this one, or "
                              "wait for it.",
                              text(copy), text(*piece.copy)));
    }
  }
  open_[place.stream].push_back({place.position, copy, {}});
}

void CopyOrder::hold(const Place& place, const Place& after) {
  open_[place.stream].push_back({place.position, std::nullopt, after});
}

void CopyOrder::told(const Place& place) {
  const auto found = open_.find(place.stream);
  while (found != open_.end() && !found->second.empty() &&
         found->second.front().position <= place.position) {
    const Piece piece = found->second.front();
    found->second.pop_front();
    if (!piece.copy) told(piece.after);
  }
}

// What is done before the end of `place` is, by stream.
void CopyOrder::reach(const Place& place, Reached& reached) const {
  std::uint64_t& position = reached[place.stream];
  if (place.position <= position) return;
  position = place.position;
  const auto found = open_.find(place.stream);
  if (found == open_.end()) return;
  for (const Piece& piece : found->second) {
    if (piece.position <= place.position && !piece.copy) reach(piece.after, reached);
  }
}

}  // namespace motley::test
