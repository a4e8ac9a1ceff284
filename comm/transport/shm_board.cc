#include "comm/transport/shm_board.h"

namespace motley {
namespace {

// Every bit of `x` and of `h` spreads over the whole word.
constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t x) noexcept {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

std::uint64_t hash(const GroupTag& tag) noexcept {
  return mix(mix(0, tag.id), std::uint64_t{tag.epoch} << 32 | tag.attempt);
}

}  // namespace

std::uint64_t key_of(const CallId& id, const Fingerprint& f) noexcept {
  const std::uint64_t what = static_cast<std::uint64_t>(f.kind) << 24 |
                             static_cast<std::uint64_t>(f.dtype) << 16 |
                             static_cast<std::uint64_t>(f.op) << 8 | f.algorithm;
  std::uint64_t h = mix(hash(id.group), std::uint64_t{id.number} << 32 | what);
  h = mix(h, f.count);
  h = mix(h, std::uint64_t{f.root} << 32 | f.pieces);
  h ^= h << 31 ^ h >> 29;
  return (h | ShmBoard::kUsed) & ~ShmBoard::kGivenUp;
}

int seat_hint(const CallId& id) noexcept {
  return static_cast<int>((hash(id.group) + id.number) % ShmBoard::kSeats);
}

}  // namespace motley
