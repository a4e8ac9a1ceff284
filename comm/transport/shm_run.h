// comm/transport/shm_run.h: what a rank knows of one collective of its team under way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/transport/shm_board.h"
#include "comm/transport/team.h"

namespace motley {

inline constexpr std::size_t kLongestPiece = 256 << 10;  // of a block
inline constexpr std::size_t kShortestPiece = 32 << 10;  // a shorter one is not worth the waits
inline constexpr std::size_t kAllSlots = 8 << 20;        // of all members: they stay in caches
inline constexpr std::size_t kFewPieces = 16;            // of a block, however long those are then
inline constexpr std::size_t kMoveInPlace = 512 << 10;   // done between two looks at the others

constexpr std::size_t whole_lines(std::size_t bytes) noexcept {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

// How long the pieces are that blocks are cut into, the longest of them `block` bytes: two turns of
// slots hold one from each member to each.
constexpr std::size_t piece_bytes(int members, std::size_t block) noexcept {
  const auto p = static_cast<std::size_t>(members);
  const std::size_t cached = std::max(kAllSlots / (2 * p * p), block / kFewPieces);
  const std::size_t piece = std::clamp(cached, kShortestPiece, kLongestPiece);
  return std::min(whole_lines(block), whole_lines(piece));
}

struct ShmRun final : TeamRun {
  enum class Way : std::uint8_t { kAtOnce, kReduce, kExchange };
  struct Member {
    int rank = -1;
    int at = -1;               // its seat for this call; -1: not found yet
    std::uint32_t ticket = 0;  // of the call there
    ShmSeat* seat = nullptr;
  };
  // What a member shows in its line where it does not show all it has.
  struct Offer {
    static constexpr std::uint64_t kPrivate = ~std::uint64_t{0};  // nowhere: others cannot see it
    std::uint64_t in = kPrivate;  // where its buffers lie in its heap
    std::uint64_t out = kPrivate;
    std::uint64_t address = 0;  // of `in` in its process, where that is to be read; else 0
    std::uint64_t longest = 0;  // exchange: bytes of the longest block that it gives
    double weight = 1;          // reduce: of its `in`
  };
  static_assert(sizeof(Offer) <= ShmSeat::kLineBytes);
  struct Block {  // of a buffer, in bytes
    std::size_t begin = 0;
    std::size_t bytes = 0;
    std::size_t slot = 0;  // where pieces of it are laid out, from where a turn of slots begins
  };
  // Where another member has a block for us: in its `in`, or piece by piece in its slots.
  struct Source {
    std::uint64_t bytes = 0;
    std::uint64_t in = 0;     // from where `in` begins
    std::uint64_t slot = 0;   // from where the slots for pieces begin
    std::uint64_t turn = 0;   // from one piece to the next, which take turns
    std::uint64_t slots = 0;  // where they begin, from the start of its heap
  };

  TeamCall call;
  std::uint64_t key = 0;
  int me = 0;         // index among the members
  int size = 0;       // number of members
  int hint = 0;       // the seat where members look first
  int seat = -1;      // ours; -1: none yet
  int found = 0;      // members [0, found) have been found
  bool news = false;  // something was shown since the others were rung
  Way way = Way::kAtOnce;
  std::vector<Member> members;               // by index
  std::byte line[ShmSeat::kLineBytes] = {};  // what is shown beside the key, or else `line_from`
  const std::byte* line_from = nullptr;
  std::size_t line_bytes = 0;

  // What it waits for, where that is a count: until awaited >= value.
  const std::atomic<std::uint32_t>* awaited = nullptr;
  std::uint32_t value = 0;

  // Kinds that go on for a while (shm_reduce.cc, shm_exchange.cc).
  Offer offer;                  // ours
  std::vector<Offer> offers;    // by index, once `decided`
  bool decided = false;         // all members are found, and `in_place` is set
  bool in_place = false;        // nothing is laid out: all members' buffers are seen by all
  std::size_t block = 0;        // of each member, in bytes; the last may be shorter
  std::size_t piece = 0;        // of a block, in bytes
  std::size_t turn = 0;         // exchange: bytes of slots that a piece of all blocks takes
  std::uint32_t pieces = 0;     // that the longest block has
  std::uint32_t to_give = 0;    // pieces that we lay out for the others
  std::uint32_t given = 0;      // pieces laid out for the others
  std::uint32_t done = 0;       // pieces all done with
  int step = 0;                 // in the piece under way: members done with
  std::byte* slots = nullptr;   // where pieces are laid out
  std::size_t progress = 0;     // in place: bytes of the block under way done with
  std::vector<Block> gives;     // exchange: the block of `in` for each member, by index
  std::vector<Block> gets;      // exchange: the block of `out` from each
  std::vector<Source> sources;  // exchange: of that, at the giver; once `decided`
};

}  // namespace motley
