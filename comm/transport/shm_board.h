// comm/transport/shm_board.h: where a rank shows its part of each collective under way to its
// peers.
//
// The board has seats. A rank takes a seat for a call, writes what the call is and what it gives,
// and at last the key, by which the others know the seat. Only the owner writes to its board, so a
// rank that dies leaves nothing half done. A seat is used again once all members of its last call
// are through with that call, as the words of their own boards tell: nobody acknowledges anything.
//
// Which seat: the same for all members if it is free, seat_hint(); the next free one otherwise,
// which counts as a stray, and is searched for by those who see that count change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/transport/shm_ring.h"
#include "comm/transport/transport.h"

namespace motley {

// Processors fetch lines in pairs. What one rank writes while another reads the line beside it
// would be taken from it each time, so every line stands in a pair of its own.
inline constexpr std::size_t kLinePair = 2 * kCacheLine;

struct ShmSeat {
  static constexpr std::size_t kOneLineBytes = 52;
  static constexpr std::size_t kLineBytes = kOneLineBytes + kCacheLine;

  // key, ticket and up to 52 bytes of data come in one transfer between cores. The second line of
  // the pair has what is more, and comes at the same time where it is asked for beforehand.
  alignas(kLinePair) std::atomic<std::uint64_t> key;  // written last; 0: empty
  std::atomic<std::uint32_t> ticket;  // grows with every call of this board; never 0
  std::byte line[kLineBytes];
  // What the key stands for, for those who look for another call.
  alignas(kLinePair) CallId id;
  Fingerprint fingerprint;
  // How far the owner has come, in pieces; each line has one writer and is read by all.
  alignas(kLinePair) std::atomic<std::uint32_t> given;   // pieces laid out
  std::atomic<std::uint64_t> slots;                      // where, from the start of the heap
  alignas(kLinePair) std::atomic<std::uint32_t> taken;   // pieces taken or reduced
  alignas(kLinePair) std::atomic<std::uint32_t> writes;  // 1: the owner writes to others' buffers
};

struct ShmBoard {
  static constexpr int kSeats = 64;
  // What a seat shows of a call beside its line, where that is too short: others know where to look
  // before they have seen the key, so all lines may come in the time of one.
  static constexpr std::size_t kMoreBytes = 1 << 10;
  static constexpr std::uint64_t kUsed = 1;     // in every key
  static constexpr std::uint64_t kGivenUp = 2;  // in keys of calls that their owner has given up

  alignas(kLinePair) std::atomic<std::uint32_t> strays;  // so many there were
  // The ticket of the call that the owner of each seat is not through with yet; else 0.
  alignas(kLinePair) std::atomic<std::uint32_t> busy[kSeats];
  ShmSeat seats[kSeats];
  alignas(kLinePair) std::byte more[kSeats][kMoreBytes];
};

// Every bit of `x` and of `h` spreads over the whole word.
constexpr std::uint64_t mix(std::uint64_t h, std::uint64_t x) noexcept {
  h = (h ^ x) * 0x9e3779b97f4a7c15u;
  return h ^ h >> 32;
}

constexpr std::uint64_t hash(const GroupTag& tag) noexcept {
  return mix(mix(0, tag.id), std::uint64_t{tag.epoch} << 32 | tag.attempt);
}

// Names call `number` of the group of that hash, as all its members see it: kUsed is set, kGivenUp
// is not.
constexpr std::uint64_t key_of(std::uint64_t group, std::uint32_t number,
                               const Fingerprint& f) noexcept {
  const std::uint64_t what = static_cast<std::uint64_t>(f.kind) << 24 |
                             static_cast<std::uint64_t>(f.dtype) << 16 |
                             static_cast<std::uint64_t>(f.op) << 8 | f.algorithm;
  std::uint64_t h = mix(group, std::uint64_t{number} << 32 | what);
  h = mix(h, f.count);
  h = mix(h, std::uint64_t{f.root} << 32 | f.pieces);
  return (h | ShmBoard::kUsed) & ~ShmBoard::kGivenUp;
}

// The seat where members look first.
constexpr int seat_hint(std::uint64_t group, std::uint32_t number) noexcept {
  return static_cast<int>((group + number) % ShmBoard::kSeats);
}

}  // namespace motley
